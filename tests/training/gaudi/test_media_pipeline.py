"""The real habana-media-loader on our graph and our reader, as far as they go without its native library."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from habana_frameworks.mediapipe.plugins import iterator_pytorch
from PIL import Image

from bridgetower_ray.data.jpeg_files import JpegFiles
from bridgetower_ray.data.mediapipe import CaptionPipe, EpochBatches, MediaPipeLoader
from bridgetower_ray.data.pipelines import psnr
from bridgetower_ray.data.preparation import prepare
from bridgetower_ray.data.resize import fast_pixels
from bridgetower_ray.errors import TrialError
from bridgetower_ray.sweep.cells import MEDIA_LOADER, Trial
from bridgetower_ray.training import worker
from bridgetower_ray.training.samples import load_tokens

ROWS, BATCH, TOKENS, SIZE = 24, 4, 16, 64
HALF = (0.5, 0.5, 0.5)
TrialOf = Callable[..., Trial]


@pytest.fixture
def files(trial_of: TrialOf, tmp_path: Path) -> tuple[JpegFiles, dict[str, torch.Tensor]]:
    """The exported images of the data set, and its tokens."""
    cell = trial_of(mediapipe_dataloader=True).cell
    prepared = prepare(cell, tmp_path)
    assert prepared.jpeg_folder is not None
    return JpegFiles(Path(prepared.jpeg_folder)), load_tokens(cell, prepared)


def pipe(files: tuple[JpegFiles, dict[str, torch.Tensor]], rank: int = 0, ranks: int = 1) -> CaptionPipe:
    batches = EpochBatches(ROWS, BATCH, seed=0, rank=rank, ranks=ranks)
    return CaptionPipe(files[0], list(files[1].values()), batches, BATCH, SIZE, (HALF, HALF))


def built(one: CaptionPipe) -> dict[str, Any]:
    """Have the package check the graph and make its nodes; the native compiler is where it ends. The nodes by class."""
    with pytest.raises(RuntimeError, match="Media API createGenericNode"):
        one.build()
    return {type(node).__name__: node for node in one._gp._ops}


def test_the_package_takes_the_graph_as_far_as_its_native_compiler(files: Any) -> None:
    nodes = built(pipe(files))
    assert sorted(nodes) == ["image_decoder", "media_constants", "media_ext_reader_op", "media_hpu_ops"]
    decoder = nodes["image_decoder"]
    assert (decoder.resize, decoder.output_format) == ([SIZE, SIZE], "rgb-p")
    assert list(decoder.gen_output_info()[0].shape) == [SIZE, SIZE, 3, BATCH]


def test_the_reader_announces_what_it_gives(files: Any) -> None:
    reader = built(pipe(files))["media_ext_reader_op"]
    reader.iter()
    for given, told in zip(reader.next(), reader.gen_output_info(), strict=True):
        assert list(reversed(given.shape)) == list(told.shape)
    assert [values.dtype.kind for values in reader.next()] == ["S", "f", "i", "i"]


def test_over_two_ranks_each_sample_is_read_once_an_epoch_with_its_own_tokens(files: Any) -> None:
    exported, tokens = files
    path_of = {str(path): row for row, path in enumerate(exported.paths(np.arange(ROWS)))}
    readers = [built(pipe(files, rank, ranks=2))["media_ext_reader_op"] for rank in range(2)]
    epochs = []
    for _ in range(2):
        seen = []
        for reader in readers:
            reader.iter()
            assert len(reader) == ROWS // (2 * BATCH)
            for _ in range(len(reader)):
                paths, _, input_ids, attention_mask = reader.next()
                rows = [path_of[path.decode()] for path in paths]
                assert np.array_equal(input_ids, tokens["input_ids"][rows].numpy())
                assert np.array_equal(attention_mask, tokens["attention_mask"][rows].numpy())
                seen += rows
            with pytest.raises(StopIteration):
                reader.next()
        assert sorted(seen) == list(range(ROWS))
        epochs.append(seen)
    assert epochs[0] != epochs[1]


def test_every_rank_has_as_many_full_batches_and_none_shares_a_sample() -> None:
    ranks = [EpochBatches(26, BATCH, seed=1, rank=rank, ranks=2) for rank in range(2)]
    drawn = [[row for batch in own for row in batch] for own in ranks]
    assert [len(rows) for rows in drawn] == [12, 12]
    assert not set(drawn[0]) & set(drawn[1])


def test_less_than_a_batch_for_each_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="7 samples are less than one batch of 4 for each of 2 ranks"):
        EpochBatches(7, BATCH, seed=0, rank=0, ranks=2)


def test_the_windows_cut_out_what_the_reference_shows(files: Any) -> None:
    exported = files[0]
    rows = np.arange(ROWS)
    for path, window in zip(exported.paths(rows), exported.windows(rows, SIZE), strict=True):
        asked, shown = cut(str(path), window), fast_pixels(Path(str(path)).read_bytes(), SIZE)
        assert psnr(torch.from_numpy(asked) / 255, torch.from_numpy(shown) / 255) > 40


def cut(path: str, window: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the device is asked for: crop by shares, then resize."""
    with Image.open(path) as image:
        left, top, width, height = (float(share) for share in window * np.float32([*image.size, *image.size]))
        box = (left, top, left + width, top + height)
        return np.asarray(image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC, box))


class PillowDevice:
    """In place of the package's iterator: reads through the real reader, and decodes with Pillow."""

    def __init__(self, mediapipe: CaptionPipe) -> None:
        self._reader = built(mediapipe)["media_ext_reader_op"]

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        self._reader.iter()
        for _ in range(len(self._reader)):
            paths, windows, *tokens = self._reader.next()
            pixels = np.stack([cut(path.decode(), window) for path, window in zip(paths, windows, strict=True)])
            images = (torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
            yield [images, *(torch.from_numpy(values) for values in tokens)]


def test_the_loader_gives_what_the_model_takes(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterator_pytorch, "HPUGenericPytorchIterator", PillowDevice)
    loader = MediaPipeLoader(*files, SIZE, (HALF, HALF), BATCH, seed=0, rank=0, ranks=1)
    batches = list(loader)
    assert len(batches) == len(loader) == ROWS // BATCH
    first = batches[0]
    assert (first["pixel_values"].shape, first["pixel_values"].dtype) == ((BATCH, 3, SIZE, SIZE), torch.float32)
    assert (first["input_ids"].shape, first["input_ids"].dtype) == ((BATCH, TOKENS), torch.int64)
    assert first["return_loss"] is True


def test_a_trial_trains_from_the_pipeline_and_records_it(
    on_cpu: None, trial_of: TrialOf, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is a stand-in; loader, reader, Trainer and meter are the real ones, over two epochs."""
    monkeypatch.setattr(iterator_pytorch, "HPUGenericPytorchIterator", PillowDevice)
    events = {event["event"]: event for event in run(trial_of(mediapipe_dataloader=True))}
    assert events["environment"]["effective"]["loader"] == MEDIA_LOADER
    assert events["environment"]["data"]["images_reencoded"] == 0
    assert (events["measured"]["window_steps"], events["measured"]["epoch_boundaries"]) == (4, 1)


def test_a_pipeline_that_cannot_be_built_fails_the_trial_without_a_number(
    on_cpu: None, trial_of: TrialOf, run: Any
) -> None:
    """The native library is missing here, as it would be on a host without it."""
    with pytest.raises(TrialError, match="the media pipeline cannot be built: RuntimeError: Media API"):
        run(trial_of(mediapipe_dataloader=True))
    assert "measured" not in {event["event"] for event in run.events()}


def test_another_loader_under_the_pipelines_name_is_refused(
    on_cpu: None, trial_of: TrialOf, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "media_loader", lambda *_: None)
    with pytest.raises(TrialError, match=r"mediapipe_dataloader: true was asked for, but torch\.utils\.data\S+ loads"):
        run(trial_of(mediapipe_dataloader=True))
    assert "measured" not in {event["event"] for event in run.events()}


def test_the_pipeline_where_it_was_not_asked_for_is_refused(
    on_cpu: None, files: Any, trial_of: TrialOf, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iterator_pytorch, "HPUGenericPytorchIterator", PillowDevice)
    loader = MediaPipeLoader(*files, SIZE, (HALF, HALF), BATCH, seed=0, rank=0, ranks=1)
    monkeypatch.setattr(worker, "media_loader", lambda *_: loader)
    with pytest.raises(TrialError, match=f"mediapipe_dataloader: false was asked for, but {MEDIA_LOADER} loads"):
        run(trial_of())
