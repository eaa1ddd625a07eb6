"""The precision that a model's forward pass really runs in, read off the pass itself."""

from typing import Any

import torch
from torch import nn


class SeenPrecision:
    """Looks at the first forward pass through a model's first linear layer, then gets out of the way."""

    def __init__(self, model: nn.Module) -> None:
        self.words: str | None = None
        linear = next((module for module in model.modules() if isinstance(module, nn.Linear)), None)
        self._hook = linear.register_forward_hook(self._see) if linear is not None else None

    def _see(self, module: nn.Module, arguments: Any, output: Any) -> None:
        del module, arguments
        kind = str(output.dtype).removeprefix("torch.").replace("bfloat16", "bf16").replace("float16", "fp16")
        autocast = torch.is_autocast_enabled(output.device.type)
        self.words = f"{kind} autocast" if autocast else kind
        if self._hook is not None:
            self._hook.remove()
