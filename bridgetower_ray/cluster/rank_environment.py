"""The environment of a rank: what torch and optimum-habana read, and nothing of Ray's."""

import os
from collections.abc import Mapping
from pathlib import Path

from bridgetower_ray.doctor.software import interpreter_environment

LONGEST_TMPDIR = 107 - len("/pymp-12345678/listener-12345678")  # a UNIX socket's name has at most 107 bytes
RENDEZVOUS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
NOT_AT_IMPORTS = (*RENDEZVOUS, "TMPDIR")  # they differ from trial to trial, and are read when they are needed


def handed_to_ranks(interpreter: str, folder: Path) -> dict[str, str]:
    """This process's environment, with the interpreter's own tools first and temporary files in the trial's folder."""
    return {**os.environ, "PATH": _search_path(interpreter), **_temporary_files_in(folder)}


def read_at_imports(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment libraries may read when they are imported."""
    return {name: value for name, value in environment.items() if name not in NOT_AT_IMPORTS}


def _temporary_files_in(folder: Path) -> dict[str, str]:
    """What has a rank's temporary files go with its trial's folder; nothing where its sockets' names would not fit."""
    return {"TMPDIR": str(folder)} if len(str(folder)) <= LONGEST_TMPDIR else {}


def _search_path(interpreter: str) -> str:
    """PATH with the interpreter's own tools first: optimum-habana asks the `pip` that it finds for Gaudi's version."""
    own = [str(Path(interpreter).parent)] if Path(interpreter).is_absolute() else []
    return os.pathsep.join([*own, *filter(None, [os.environ.get("PATH")])])


def rank_environment(inherited: Mapping[str, str], rank: int, ranks: int, master_port: int) -> dict[str, str]:
    """A rank's environment, read by torch and optimum-habana alike.

    Threads are one until the rank gives itself what its cell says: Ray would have them by the CPUs of its actor. A
    single rank is not told of a rendezvous: accelerate would train it under DDP, as nobody would by hand.
    """
    rendezvous = dict(zip(RENDEZVOUS, (rank, rank, ranks, ranks, "127.0.0.1", master_port), strict=True))
    environment = interpreter_environment(inherited)
    return {
        **{name: value for name, value in environment.items() if name not in rendezvous},
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        **({name: str(value) for name, value in rendezvous.items()} if ranks > 1 else {}),
    }
