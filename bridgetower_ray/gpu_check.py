"""`python -m bridgetower_ray.gpu_check`: BridgeTower Large on one GPU, under each loader, in eight minutes.

For anyone with a GPU: wants torch, transformers and what reads the data, but no Ray and no MLflow. Each setting is one
trial, as a sweep would run it, ceilings included; a single one gives no interval.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgetower_ray.cluster.supervision import ProcessGroup
from bridgetower_ray.data.preparation import prepare
from bridgetower_ray.doctor.hardware import devices
from bridgetower_ray.errors import BridgetowerRayError, UsageError
from bridgetower_ray.report.diagnosis import takes_turns, verdict
from bridgetower_ray.report.flags import flags_of
from bridgetower_ray.sweep.accelerators import ACCELERATORS, Accelerator, variant
from bridgetower_ray.sweep.cells import Cell, Trial, setting_label
from bridgetower_ray.sweep.effective import effective
from bridgetower_ray.sweep.outcomes import Kind, Outcome, by_what_was_measured
from bridgetower_ray.sweep.settings import AxisValue, DatasetSettings, MeasureSettings, TrainingSettings
from bridgetower_ray.training.job import Job

PIPELINES = ("reference", "fast", "cached")
LISTEN_SECONDS = 1.0
COLUMNS = ("setting", "samples/s", "compute ceiling", "loader ceiling", "data wait", "what holds it back")


@dataclass(frozen=True)
class Size:
    """How large the check is: of the published model and batch on a GPU, of the tiny one on a CPU."""

    model: str
    batch: int
    samples: int
    bf16: bool


ON_GPU = Size("preset:large", batch=48, samples=480, bf16=True)
ON_CPU = Size("preset:tiny", batch=4, samples=96, bf16=False)
FEWEST_WINDOW_STEPS = 20
PREFETCH_FACTOR = 1  # half of torch's own: so the window need be half as long for the queues not to flatter it


@dataclass(frozen=True)
class Result:
    """What a trial left: its outcome, and the events that it emitted by their name."""

    trial: Trial
    outcome: Outcome
    events: dict[str, dict[str, Any]]

    @property
    def figures(self) -> dict[str, Any]:
        """Everything measured, in the window and after it."""
        return {**self.events.get("measured", {}), **self.events.get("figures", {})}


def main() -> int:
    """Exit status 0 if every setting was measured, 1 if not, 2 if there is no GPU or the request is at fault."""
    wanted = _arguments()
    try:
        _check_writable(wanted.output)
        accelerator = ACCELERATORS["cpu"] if wanted.cpu else _this_gpu()
        trials = list(_trials(accelerator, ON_CPU if wanted.cpu else ON_GPU, wanted.workers, wanted.pipelines))
        results = list(_measure(trials, wanted.minutes * 60))
    except BridgetowerRayError as error:
        sys.stderr.write(f"gpu-check: {error}\n")
        return 2
    _write(sys.stdout, _table(results))
    wanted.output.write_text(json.dumps([_record(result) for result in results], indent=2))
    _write(sys.stdout, [f"all that was measured: {wanted.output}"])
    return 0 if all(result.outcome.kind is Kind.MEASURED for result in results) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="everything but the GPU: preset:tiny on the CPU")
    parser.add_argument("--workers", type=_count, nargs="+", default=[0, 1, 2], help="loader workers to try")
    parser.add_argument("--pipelines", nargs="+", choices=PIPELINES, default=PIPELINES, help="input pipelines to try")
    parser.add_argument("--minutes", type=float, default=8.0, help="start no trial that would end later than this")
    parser.add_argument("--output", type=Path, default=Path("gpu-check.json"), help="file for all that was measured")
    return parser.parse_args()


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of workers")
    return int(text)


def _check_writable(file: Path) -> None:
    try:
        file.touch()
    except OSError as error:
        raise UsageError(f"--output: {file}: {error.strerror}") from None


def _this_gpu() -> Accelerator:
    import torch

    if not torch.cuda.is_available():
        raise UsageError(f"torch {torch.__version__} sees no CUDA device here; --cpu tries everything but the device")
    known = next((name for name in devices() if name in ACCELERATORS), None)
    return ACCELERATORS[known] if known else variant(torch.cuda.get_device_name().replace(" ", "-"), "h100")


def _trials(accelerator: Accelerator, size: Size, workers: Sequence[int], pipelines: Sequence[str]) -> Iterator[Trial]:
    for pipeline in pipelines:
        for count in workers:
            axes: dict[str, AxisValue] = {
                "accelerator": accelerator.name,
                "dataloader_num_workers": count,
                "input_pipeline": pipeline,
            }
            cell = _cell(accelerator, size, {name: axes[name] for name in axes if name != "accelerator"})
            yield Trial(setting=setting_label(axes), axes=axes, cell=cell, repeat=1, resources={})


def _cell(accelerator: Accelerator, size: Size, axes: dict[str, AxisValue]) -> Cell:
    """A cell whose window is just long enough for what its loader's queues hold."""
    fixed = {"per_device_train_batch_size": size.batch, "learning_rate": 1e-5, "bf16": size.bf16}
    asked = TrainingSettings.model_validate({**fixed, **axes, "dataloader_prefetch_factor": PREFETCH_FACTOR})
    cell = Cell(
        accelerator=accelerator,
        devices=1,
        model=size.model,
        dataset=DatasetSettings(path="builtin:cartoons", max_train_samples=size.samples),
        training=effective(asked, accelerator, devices=1),
        measure=MeasureSettings(repeats=1, timeout_minutes=5.0),
    )
    steps = cell.warmup_steps + max(FEWEST_WINDOW_STEPS, cell.steady_window_steps)
    return cell.model_copy(update={"training": cell.training.model_copy(update={"max_steps": steps})})


def _measure(trials: Sequence[Trial], seconds: float) -> Iterator[Result]:
    """Each trial in turn; those for which the time is not enough, by the longest so far, are not run."""
    started = time.monotonic()
    longest = 0.0
    for trial in trials:
        began = time.monotonic()
        if began - started + longest > seconds:
            result = Result(trial, Outcome(Kind.NOT_RUN, "no time was left"), {})
        else:
            result = _run(trial)
            longest = max(longest, time.monotonic() - began)
        speed = result.figures.get("train_samples_per_second")
        _write(sys.stderr, [f"{trial.setting}: {result.outcome}" + (f"  {speed:.1f} samples/s" if speed else "")])
        yield result


def _run(trial: Trial) -> Result:
    job = Job(trial=trial, base_folder=".", prepared=prepare(trial.cell, Path()))
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        folder = Path(name)
        (folder / "trial.json").write_text(job.model_dump_json())
        command = [sys.executable, "-m", "bridgetower_ray.training", str(folder / "trial.json")]
        limit = trial.cell.measure.timeout_minutes * 60
        group = ProcessGroup(command, 1, folder, timeout_seconds=limit)
        events: dict[str, dict[str, Any]] = {}
        while group.outcome is None:
            _merge(events, group.wait(LISTEN_SECONDS))
    return Result(trial, by_what_was_measured(group.outcome, events.get("measured")), events)


def _merge(events: dict[str, dict[str, Any]], heard: Sequence[dict[str, Any]]) -> None:
    """The newest of each event, but of figures all."""
    for event in heard:
        name = event.pop("event")
        events[name] = {**events.get(name, {}), **event} if name == "figures" else event


def _record(result: Result) -> dict[str, Any]:
    return {
        "setting": result.trial.setting,
        "outcome": str(result.outcome),
        "figures": result.figures,
        "environment": result.events.get("environment", {}),
    }


def _table(results: Sequence[Result]) -> list[str]:
    """The device and the software, then a Markdown table."""
    facts: dict[str, Any] = next((one.events["environment"] for one in results if "environment" in one.events), {})
    names, versions = ", ".join(sorted(set(facts.get("devices", [])))), facts.get("versions", {})
    lines = [f"{names}, {facts.get('cpus_usable')} CPUs; torch {versions.get('torch')}", ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    return lines + ["| " + " | ".join(_row(result)) + " |" for result in results]


def _row(result: Result) -> tuple[str, ...]:
    figures, cell = result.figures, result.trial.cell
    if result.outcome.kind is not Kind.MEASURED:
        return (result.trial.setting, str(result.outcome), "", "", "", "")
    compute, loader = (figures.get(f"{name}_ceiling_samples_per_second") for name in ("compute", "loader"))
    turns = takes_turns(cell.training.dataloader_num_workers, False, cell.copies_ahead)
    held = verdict(figures["train_samples_per_second"], compute, loader, turns)
    doubts = flags_of(figures, cell, result.events["environment"])
    wait = figures.get("data_wait_fraction")
    return (
        result.trial.setting,
        f"{figures['train_samples_per_second']:.1f}",
        f"{compute:.1f}" if compute else "-",
        f"{loader:.1f}" if loader else "-",
        f"{wait:.0%}" if wait is not None else "-",
        "; ".join([str(held or "not known"), *doubts]),
    )


def _write(stream: Any, lines: Sequence[str]) -> None:
    stream.write("".join(f"{line}\n" for line in lines))
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
