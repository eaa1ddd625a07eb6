"""`python -m tests.bench [SECTION ...]`: run all sections, or those named."""

import importlib
import os
import sys

SECTIONS = (
    "plan_time",
    "calibration",
    "meter_cost",
    "telemetry_cost",
    "warm_start",
    "pipelines",
    "scheduling",
    "report_scale",
    "coverage",
    "stopping",
)


def main() -> None:
    """Each section prints its own table."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in sys.argv[1:] or SECTIONS:
        print(f"\n== {name.replace('_', ' ')} ==", flush=True)
        importlib.import_module(f"tests.bench.{name}").main()


if __name__ == "__main__":
    main()
