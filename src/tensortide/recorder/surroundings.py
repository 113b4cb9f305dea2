"""The process around a capture: what the step may change of it is put back, what would disturb it is held off."""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensortide.collector import no_collection


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Everything a capture needs around it, and everything it must leave as it was."""
    with global_state(), no_collection(), uncompiled(), no_log():
        yield


def _flag(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    return functools.partial(getattr, owner, name), functools.partial(setattr, owner, name)


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


_cuda, _cudnn = torch.backends.cuda, torch.backends.cudnn
_SWITCHES: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_grad_enabled, torch._C._set_grad_enabled),
    (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (_deterministic, _set_deterministic),
    *(
        (functools.partial(torch.is_autocast_enabled, d), functools.partial(torch.set_autocast_enabled, d))
        for d in ("cpu", "cuda")
    ),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    (_cuda.flash_sdp_enabled, _cuda.enable_flash_sdp),
    (_cuda.math_sdp_enabled, _cuda.enable_math_sdp),
    (_cuda.mem_efficient_sdp_enabled, _cuda.enable_mem_efficient_sdp),
    (_cuda.cudnn_sdp_enabled, _cuda.enable_cudnn_sdp),
    *(_flag(_cudnn, name) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")),
]
"""The framework's global switches, each as a question and a way to set it."""


@contextlib.contextmanager
def global_state() -> Iterator[None]:
    """Restore random generators and global switches on exit: Python, NumPy, PyTorch (CPU and accelerators)."""
    numpy_random = sys.modules.get("numpy.random")
    python_rng, torch_rng = random.getstate(), torch.get_rng_state()
    numpy_rng = numpy_random.get_state() if numpy_random else None
    cuda_rng = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    switches = [(get, put, get()) for get, put in _SWITCHES]
    try:
        with warnings.catch_warnings():
            yield
    finally:
        random.setstate(python_rng)
        torch.set_rng_state(torch_rng)
        if numpy_random and numpy_rng is not None:
            numpy_random.set_state(numpy_rng)
        if cuda_rng is not None:
            torch.cuda.set_rng_state_all(cuda_rng)
        for get, put, value in switches:
            if get() != value:
                put(value)


@contextlib.contextmanager
def no_log() -> Iterator[None]:
    """The framework logs each failure of a fake kernel with a traceback; the error says it once."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Compiled modules run eagerly during capture; their compiled code stays as it is."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
