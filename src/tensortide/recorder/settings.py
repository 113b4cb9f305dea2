"""Settings of the process that the results of kernels depend on: read, compared and changed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch

from tensortide.graph.precision import DEFAULT_TF32, InTf32
from tensortide.recorder.torch_compat import found

C: Any = found("torch._C")
Settings = tuple[Any, ...]
"""Values of the settings, in the order of ``TABLE``; None where PyTorch refuses to tell."""

_FLAGS = (
    *("blas_preferred_backend", "cpu_allow_fp16_reduced_precision_reduction", "cudnn_allow_tf32", "cudnn_benchmark"),
    *("cublas_allow_bf16_reduced_precision_reduction", "cublas_allow_fp16_accumulation", "cublas_allow_tf32"),
    *("cublas_allow_fp16_reduced_precision_reduction", "cudnn_deterministic", "cudnn_enabled"),
    *("float32_matmul_precision", "linalg_preferred_backend", "mkldnn_deterministic"),
    *("math_sdp_allow_fp16_bf16_reduction", "mkldnn_enabled", "nnpack_enabled"),
)
"""Names of ``torch._C._get_...`` and ``_set_...``, as far as this PyTorch has them."""
_PRECISIONS = [(backend, op) for backend in ("generic", "mkldnn", "cuda") for op in ("all", "conv", "rnn", "matmul")]
_SUBNORMAL = 5e-324


def _flushing() -> bool:
    """Return whether this thread takes denormal numbers as 0: PyTorch does not tell."""
    return _SUBNORMAL * 1.0 == 0.0


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


_set_deterministic: Any = C._set_deterministic_algorithms


def _be_deterministic(on: bool, warn_only: bool) -> None:
    _set_deterministic(on, warn_only=warn_only)


def _table() -> dict[str, tuple[Callable[[], Any], Callable[..., Any]]]:
    rows: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
        "_set_default_dtype": (torch.get_default_dtype, C._set_default_dtype),
        "set_num_threads": (torch.get_num_threads, C.set_num_threads),
        "set_flush_denormal": (_flushing, C.set_flush_denormal),
        "_set_deterministic_algorithms": (_deterministic, _be_deterministic),
    }
    for name in _FLAGS:
        if hasattr(C, f"_get_{name}") and hasattr(C, f"_set_{name}"):
            rows[f"_set_{name}"] = getattr(C, f"_get_{name}"), getattr(C, f"_set_{name}")
    if hasattr(C, "_set_fp32_precision_setter"):
        for backend, op in _PRECISIONS:
            get = functools.partial(C._get_fp32_precision_getter, backend, op)
            with contextlib.suppress(RuntimeError):  # no such pair
                get()
                rows[f"{backend}.{op}"] = get, functools.partial(C._set_fp32_precision_setter, backend, op)
    return rows


TABLE = _table()
"""Functions that read and change each setting, by the name of the function of ``torch._C`` that changes it, or by
backend and op."""


def in_tf32() -> tuple[InTf32, ...]:
    """Ops of fp32 that compute in TF32 on a GPU, as the program has set it by any of PyTorch's interfaces."""
    ops: tuple[tuple[InTf32, str], ...] = (("products", "cuda.matmul"), ("convolutions", "cuda.conv"))
    if any(name not in TABLE for _, name in ops):  # an older PyTorch
        return DEFAULT_TF32
    return tuple(kind for kind, name in ops if TABLE[name][0]() == "tf32")


def snapshot() -> Settings:
    """Read all settings."""
    return tuple([_read(get) for get, _ in TABLE.values()])


def _read(get: Callable[[], Any]) -> Any:
    """Read one setting; None if it was changed through the newer of two interfaces, which the older one refuses."""
    try:
        return get()
    except RuntimeError:
        return None


_THREADS, _FLUSHING = (list(TABLE).index(name) for name in ("set_num_threads", "set_flush_denormal"))


def stale(settings: Settings) -> bool:
    """Return whether one of those that are changed without PyTorch's knowledge, by OpenMP say, or by a function that
    the program has taken from PyTorch before, is another one now."""
    return bool(torch.get_num_threads() != settings[_THREADS] or _flushing() != settings[_FLUSHING])


def change(wanted: Settings) -> None:
    """Change the settings into those ``wanted``. Each is read just before, as to change one may change those after."""
    for (get, put), new in zip(TABLE.values(), wanted, strict=True):
        if new is not None and _read(get) != new:
            put(*new) if isinstance(new, tuple) else put(new)
