"""Gaudi's media pipeline: images are decoded, cropped, resized and normalised on the device.

Imports habana_frameworks, so it is imported only where the Gaudi software is.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from habana_frameworks.mediapipe import fn
from habana_frameworks.mediapipe.media_types import dtype, ftype, imgtype, mediaDeviceType, readerOutType
from habana_frameworks.mediapipe.mediapipe import MediaPipe
from habana_frameworks.mediapipe.operators.reader_nodes.reader_nodes import (
    media_ext_reader_op_impl,
    media_ext_reader_op_tensor_info,
)
from numpy.typing import NDArray
from torch import Tensor

from bridgetower_ray.data.jpeg_files import JpegFiles
from bridgetower_ray.sweep.cells import MEDIA_PREFETCHED_BATCHES

Mean = Sequence[float]


class EpochBatches:
    """The rows of a rank's batches, epoch by epoch: all ranks draw one permutation and take every `ranks`-th of it.

    Only full batches, as many on every rank: what is left over of an epoch's permutation is not shown in it.
    """

    def __init__(self, rows: int, batch_size: int, seed: int, rank: int, ranks: int) -> None:
        if rows < batch_size * ranks:
            raise ValueError(f"{rows} samples are less than one batch of {batch_size} for each of {ranks} ranks")
        self._rows, self._batch_size, self._seed, self._rank, self._ranks = rows, batch_size, seed, rank, ranks
        self._epoch = 0

    def __len__(self) -> int:
        """Batches of a rank in an epoch."""
        return self._rows // (self._batch_size * self._ranks)

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        order = np.random.default_rng((self._seed, self._epoch)).permutation(self._rows)
        self._epoch += 1
        own = order[self._rank :: self._ranks][: len(self) * self._batch_size]
        return iter(own.reshape(len(self), self._batch_size))


class CaptionedJpegs(media_ext_reader_op_impl):
    """What the pipeline reads: paths, windows of the images, tokens and attention mask of a batch.

    Tensors' shapes are given to it with the batch last, as the media library has them.
    """

    def __init__(self, params: dict[str, Any], fw_params: Any) -> None:
        own = params["priv_params"]
        self._files: JpegFiles = own["files"]
        self._tokens: tuple[NDArray[np.int32], ...] = own["tokens"]
        self._batches: EpochBatches = own["batches"]
        self._image_size: int = own["image_size"]
        self._batch_size = fw_params.batch_size
        self._epoch: Iterator[NDArray[np.int64]] = iter(())

    def __iter__(self) -> "CaptionedJpegs":
        self._epoch = iter(self._batches)
        return self

    def __next__(self) -> tuple[NDArray[Any], ...]:
        rows = next(self._epoch)
        windows = self._files.windows(rows, self._image_size)
        return (self._files.paths(rows), windows, *(values[rows] for values in self._tokens))

    def __len__(self) -> int:
        return len(self._batches)

    def gen_output_info(self) -> list[Any]:
        """Types and shapes of what `__next__` gives."""
        tokens = self._tokens[0].shape[1]
        described = [(dtype.NDT, [self._batch_size]), (dtype.FLOAT32, [4, self._batch_size])]
        described += [(dtype.INT32, [tokens, self._batch_size])] * len(self._tokens)
        return [media_ext_reader_op_tensor_info(kind, np.array(shape, np.uint32), "") for kind, shape in described]

    def get_largest_file(self) -> str:
        """What the decoder sizes its buffers by."""
        return self._files.largest()

    def get_media_output_type(self) -> int:
        """The first output names files."""
        kind: int = readerOutType.FILE_LIST
        return kind


class CaptionPipe(MediaPipe):
    """The graph: read, decode with crop and resize, normalise."""

    def __init__(
        self,
        files: JpegFiles,
        tokens: Sequence[Tensor],
        batches: EpochBatches,
        batch_size: int,
        image_size: int,
        normalisation: tuple[Mean, Mean],
    ) -> None:
        self._private = {
            "files": files,
            "tokens": tuple(values.numpy().astype(np.int32) for values in tokens),
            "batches": batches,
            "image_size": image_size,
        }
        self._image_size, self._normalisation = image_size, normalisation
        # The one kind of pipe in which the image decoder's hardware is used.
        super().__init__(
            device=mediaDeviceType.LEGACY,
            prefetch_depth=MEDIA_PREFETCHED_BATCHES,
            batch_size=batch_size,
            pipe_name=type(self).__name__,
        )

    def definegraph(self) -> tuple[Any, ...]:
        """Images as float32 (batch, 3, size, size), normalised as the reference's; tokens; attention mask."""
        size = self._image_size
        mean, std = (np.array(values, dtype=np.float32) for values in self._normalisation)
        read = fn.MediaExtReaderOp(impl=CaptionedJpegs, num_outputs=4, priv_params=self._private)
        decode = fn.ImageDecoder(output_format=imgtype.RGB_P, resize=[size, size], resampling_mode=ftype.BICUBIC)
        normalise = fn.CropMirrorNorm(crop_w=size, crop_h=size, crop_d=0, dtype=dtype.FLOAT32)
        scaled_mean = fn.MediaConst(data=mean * 255, shape=[1, 1, 3], dtype=dtype.FLOAT32)
        inverse_std = fn.MediaConst(data=1 / (std * 255), shape=[1, 1, 3], dtype=dtype.FLOAT32)
        files, windows, input_ids, attention_mask = read()
        images = normalise(decode(files, windows), scaled_mean(), inverse_std())
        return images, input_ids, attention_mask


class MediaPipeLoader:
    """Batches from the pipeline, on the device: an iterable over one epoch after the other, as a Trainer takes it.

    A batch has `pixel_values` (batch, 3, size, size) float32, and `input_ids` and `attention_mask`
    (batch, tokens) int64.

    Raises:
        ImportError, OSError, RuntimeError, ValueError: the pipeline cannot be built.
    """

    num_workers = 0

    def __init__(
        self,
        files: JpegFiles,
        tokens: dict[str, Tensor],
        image_size: int,
        normalisation: tuple[Mean, Mean],
        batch_size: int,
        seed: int,
        rank: int,
        ranks: int,
    ) -> None:
        from habana_frameworks.mediapipe.plugins.iterator_pytorch import HPUGenericPytorchIterator

        self._names = tuple(tokens)
        self._batches = EpochBatches(len(files), batch_size, seed, rank, ranks)
        pipe = CaptionPipe(files, list(tokens.values()), self._batches, batch_size, image_size, normalisation)
        self._iterator = HPUGenericPytorchIterator(mediapipe=pipe)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for pixels, *tokens in self._iterator:
            named = {name: values.long() for name, values in zip(self._names, tokens, strict=True)}
            yield {"pixel_values": pixels, **named, "return_loss": True}
