"""What is settled in a process before torch and the others are imported, for they read it then."""

import os

from bridgetower_ray.sweep.cells import Trial
from bridgetower_ray.training.autocast_lists import declare_autocast_lists
from bridgetower_ray.training.binding import bind
from bridgetower_ray.training.compile_caches import declare_compile_caches
from bridgetower_ray.training.unused import hide_unused
from bridgetower_ray.training.variables import forget_unheard


def settle(trial: Trial, local_rank: int) -> None:
    """Settle this process's environment, its CPUs, and which packages its libraries find; again does no harm.

    Raises:
        TrialError: there are fewer cores than ranks to bind, or the Gaudi configuration is none.
    """
    cell = trial.cell
    forget_unheard()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threads = bind(cell, local_rank)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    declare_compile_caches(cell, trial.repeat)
    if cell.accelerator.device == "hpu":
        declare_autocast_lists(cell.training.gaudi_config_name)
        os.environ["PT_HPU_LAZY_MODE"] = "1" if cell.training.use_lazy_mode else "0"
    else:  # what the Gaudi packages do without them was not tried
        hide_unused()
