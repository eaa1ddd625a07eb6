"""The backend of a cell's accelerator, if this host can drive it."""

import torch

from bridgetower_ray.errors import NodeError
from bridgetower_ray.sweep.cells import Cell
from bridgetower_ray.training.backends.contract import Backend
from bridgetower_ray.training.backends.standard import TorchBackend


def backend_for(cell: Cell) -> Backend:
    """The backend of a cell's accelerator.

    Raises:
        NodeError: the device, or what drives it, is not on this host.
    """
    device = cell.accelerator.device
    if device == "hpu":
        return _gaudi_backend(cell)
    if device == "cuda" and not torch.cuda.is_available():
        raise NodeError(f"{cell.accelerator.label}: torch {torch.__version__} sees no CUDA device on this host")
    return TorchBackend(device)


def _gaudi_backend(cell: Cell) -> Backend:
    try:
        import habana_frameworks.torch  # noqa: F401 - makes torch.hpu

        from bridgetower_ray.training.backends.gaudi import GaudiBackend, torch_hpu
    except ImportError as error:
        missing = error.name or str(error)
        raise NodeError(f"{cell.accelerator.label}: no Gaudi software on this host ({missing} is missing)") from None
    if not torch_hpu().is_available():
        raise NodeError(f"{cell.accelerator.label}: torch {torch.__version__} sees no HPU on this host")
    return GaudiBackend()
