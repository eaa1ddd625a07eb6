"""The meter against loaders and models of known duration: expected, reported, error.

Expected throughput is B/(B l + c) without workers and B/max(B l / W, c) with W of them; the expected share of the
host's fetch in a step is what of the step is not compute. Steps are long, so that the Trainer's own few milliseconds
a step, which belong to its compute and are not in `c`, stay small beside them.
"""

from tests.bench.synthetic import measure

BATCH, WARMUP, STEPS = 8, 8, 30
SETTINGS = {"loader-bound": (0.040, 0.080), "compute-bound": (0.008, 0.240), "balanced": (0.020, 0.160)}


def main() -> None:
    """Print the calibration table."""
    print(f"{'setting':<14} workers  expected  reported  error   fetch expected  reported  error")
    for name, (load, compute) in SETTINGS.items():
        for workers in (0, 1, 2):
            step = BATCH * load + compute if workers == 0 else max(BATCH * load / workers, compute)
            window = measure(BATCH, load, compute, workers, WARMUP, STEPS)
            expected, reported = BATCH / step, BATCH * len(window.steps) / window.seconds
            share = 1 - compute / step
            print(
                f"{name:<14} {workers:>7}  {expected:>8.1f}  {reported:>8.1f}  {reported / expected - 1:>+5.1%}  "
                f"{share:>14.3f}  {window.host_fetch_fraction:>8.3f}  {window.host_fetch_fraction - share:>+.3f}",
                flush=True,
            )
