"""Environment variables that change what is measured: those that a rank does not listen to, and those on record."""

import os
import re
from collections.abc import Mapping

# accelerate and transformers read these in place of the arguments that the sweep gives.
NOT_HEARD = ("ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_")
# These are the host's own affair, and legitimate; a difference in them is a difference in the stack.
ON_RECORD = (
    "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "GLOO_", "GLIBC_TUNABLES", "GOMP_", "HABANA_", "HCCL_", "HF_", "KMP_",
    "LD_PRELOAD", "MALLOC_", "MKL_", "NCCL_", "NVIDIA_TF32_OVERRIDE", "OMP_", "ONEDNN_", "OPENBLAS_", "PT_",
    "PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTORCH_", "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_",
    "TRANSFORMERS_",
)  # fmt: skip
# Set for each trial, or without an effect on its speed; or a secret.
PASSED_OVER = re.compile(
    r"(OMP|MKL)_NUM_THREADS|(CUDA|HABANA|NVIDIA)_VISIBLE_\w+|PT_HPU_LAZY_MODE|\w*(TOKEN|SECRET|PASSWORD|_KEY)\w*"
    r"|HF_(HOME|ENDPOINT|\w*CACHE)|\w+_CACHE(_DIR)?|TORCH_HOME"
)


def forget_unheard() -> None:
    """Take out of this process's environment what would overrule the sweep's own settings."""
    for name in [name for name in os.environ if name.startswith(NOT_HEARD)]:
        del os.environ[name]


def on_record(environment: Mapping[str, str]) -> str:
    """`NCCL_DEBUG=INFO; OMP_PROC_BIND=true`, in order; `none` where nothing is set."""
    found = sorted(
        f"{name}={value}"
        for name, value in environment.items()
        if name.startswith(ON_RECORD) and not PASSED_OVER.fullmatch(name)
    )
    return "; ".join(found) or "none"


# What the process was handed: torch and others set such variables themselves once they are imported.
AT_START = on_record(os.environ)
