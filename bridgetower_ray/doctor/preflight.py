"""What can be known of a sweep's inputs on this host before anything starts."""

from pathlib import Path

from bridgetower_ray.data.captions import check_local_source
from bridgetower_ray.data.preparation import check_local_model
from bridgetower_ray.doctor.hardware import local_resources
from bridgetower_ray.doctor.interpreter import interpreter
from bridgetower_ray.sweep.spec import SweepSpec


def check_here(spec: SweepSpec, base: Path) -> int | None:
    """Look at a sweep's data, model and interpreters without loading any.

    Args:
        base: the folder that relative paths of the sweep start from.

    Returns:
        The number of samples, None where only loading can tell.

    Raises:
        UsageError: one of them is not there, or is not what it should be.
    """
    check_local_model(spec.model, base)
    here = local_resources()
    for name in spec.accelerator_names:
        settings = spec.accelerators.get(name)
        if settings and spec.accelerator(name).marker in here:  # another's interpreter is on another host
            interpreter(settings.python, base)
    return check_local_source(spec.dataset, base)
