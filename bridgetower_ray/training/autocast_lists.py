"""A Gaudi configuration's own lists of operations for autocast, which the bridge reads once, when it is imported."""

import json
import os
import tempfile
from pathlib import Path

from bridgetower_ray.errors import TrialError

# The lists in a gaudi_config.json, and the variable that tells the bridge where each is: optimum-habana's
# `GaudiConfig.declare_autocast_bf16_fp32_ops`, which refuses once the bridge is there.
AUTOCAST_LISTS = {
    "autocast_bf16_ops": "PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST",
    "autocast_fp32_ops": "PT_HPU_AUTOCAST_FP32_OPS_LIST",
}


def gaudi_config_file(name: str) -> Path:
    """The file of a configuration that lies in a folder."""
    return Path(name).expanduser() / "gaudi_config.json"


def declare_autocast_lists(name: str) -> None:
    """Tell the bridge of the lists that a configuration in a folder has; one alone counts for nothing, as upstream.

    Raises:
        TrialError: the file is no configuration.
    """
    file = gaudi_config_file(name)
    if not file.is_file():
        return
    try:
        config = json.loads(file.read_text())
        lists = {variable: config.get(key) for key, variable in AUTOCAST_LISTS.items()}
    except (AttributeError, OSError, ValueError) as error:
        raise TrialError(f"gaudi_config_name: {name} cannot be had: {str(error).splitlines()[0]}") from None
    if all(lists.values()):
        folder = Path(tempfile.mkdtemp(prefix="autocast-"))
        for variable, operations in lists.items():
            (folder / variable).write_text("".join(f"{operation}\n" for operation in operations or ()))
            os.environ[variable] = str(folder / variable)
