"""A pretended GPU: fake CUDA tensors run forward and backward on any build of PyTorch, with or without a device, and
``torch.cuda`` answers as if the GPU were there.

PyTorch needs a guard for every device it meets; on a build without CUDA there is none, and its own no-operation guard
for CUDA takes that place. Backward then runs in the calling thread, and the autograd engine, which would look for
streams of the GPU, is told that its gradients are on the CPU (``asked_by_engine``); all other code sees the GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import torch

from tensortide.errors import CaptureError, TorchUnavailable
from tensortide.recorder.gpu_arguments import understood
from tensortide.recorder.pretended_devices import (
    CUDA,
    DEFAULT_STREAM,
    Answer,
    Event,
    Stream,
    answer,
    core_names,
    current_device,
    current_stream,
    device_count,
    in_place_of,
    in_stream,
    set_device,
    set_stream,
)
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import (
    FakeTensor,
    TorchDispatchMode,
    by_op,
    core_answers,
    current_autograd_node,
    ensure_cuda_guard,
    fake_module,
    forget_missing_gpu,
    forget_rules_of_functions,
    run_backward,
)
from tensortide.recorder.wrapper_devices import devices_in_python
from tensortide.timing import Device

CPU = torch.device("cpu")
META = torch.device("meta")


@dataclass(frozen=True, slots=True)
class Gpu:
    """Properties of a GPU by which kernels are chosen, and which a program may query."""

    name: str
    capability: tuple[int, int]
    memory_bytes: int
    multiprocessors: int
    nvidia: bool = True
    arch: str = ""

    @staticmethod
    def of(row: Device) -> Gpu:
        """The GPU of a row of the catalogue. Raises CaptureError for a machine that PyTorch does not call ``cuda``."""
        found = re.search(r"sm(\d+)(\d)$", row.arch)
        if row.kind != "gpu" or row.vendor not in ("NVIDIA", "AMD"):
            raise CaptureError(f"{row.name} is no GPU that PyTorch calls cuda: name one of NVIDIA's or AMD's")
        capability = (int(found[1]), int(found[2])) if found else (9, 0)  # PyTorch's answer for GPUs of AMD
        memory = int((row.memory_gbytes or 0) * 2**30)
        return Gpu(row.name, capability, memory, row.compute_units or 0, row.vendor == "NVIDIA", row.arch)


_active: list[TorchDispatchMode] = []
"""The fake-tensor mode of the step on the pretended GPU, if there is one."""


class _Loading(TorchDispatchMode):
    """Makes what is put on the GPU while data are loaded fake tensors of ``mode``; the rest is real."""

    def __init__(self, mode: TorchDispatchMode) -> None:
        super().__init__()
        self.mode = mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func``, in the mode of the step if it names the GPU."""
        kwargs = kwargs or {}
        device = kwargs.get("device")
        with self.mode if device is not None and device.type == "cuda" else contextlib.nullcontext():
            return func(*args, **kwargs)


@contextlib.contextmanager
def unpretended() -> Iterator[None]:
    """Hide the pretended GPU while active: loading of data is real work, on the CPU."""
    if not _active:
        yield
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(_Loading(_active[-1]))
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", ".*pin_memory", UserWarning)
        stack.enter_context(CPU)
        for owner in (torch.cuda, getattr(torch, "accelerator", None)):
            if owner is not None:
                stack.enter_context(replaced(owner, "is_available", in_place_of(owner, "is_available", answer(False))))
        yield


@contextlib.contextmanager
def pretended(gpu: Gpu, mode: TorchDispatchMode, note: Callable[[str], None]) -> Iterator[None]:
    """Give the process ``gpu`` as its only CUDA device, for fake tensors of ``mode``.

    ``note`` receives what its answers assume.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_guarded())
        stack.callback(forget_rules_of_functions)
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        for owner, answers in _answers(gpu, note):
            for name, answer in answers.items():
                stack.enter_context(replaced(owner, name, in_place_of(owner, name, answer)))
        stack.enter_context(understood())
        stack.enter_context(devices_in_python())
        _active.append(mode)
        stack.callback(_active.pop)
        stack.callback(set_device, current_device())
        set_device(0)
        yield


# -- PyTorch's guard of CUDA devices ---------------------------------------------------------------

_REGISTRY = (
    "_ZN3c104impl26device_guard_impl_registryE",
    "?device_guard_impl_registry@impl@c10@@3PAU?$atomic@PEBUDeviceGuardImplInterface@impl@c10@@@std@@A",
)
_CUDA_SLOT, _LAZY_SLOT, _SLOTS = 1, 17, 20


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Install PyTorch's no-operation guard for CUDA devices while active.

    ``_ensureCUDADeviceGuardSet`` installs it in place of a guard that has no device. A build without CUDA has no guard
    to replace, so that of lazy tensors, which has no device either, is put there first.
    """
    if ensure_cuda_guard is None:
        raise _refusal()
    registry = _registry()
    before = registry[_CUDA_SLOT]
    if before:
        forget_missing_gpu()
    else:
        registry[_CUDA_SLOT] = registry[_LAZY_SLOT]
    try:
        ensure_cuda_guard()
        if not before and registry[_CUDA_SLOT] in (None, registry[_LAZY_SLOT]):
            raise _refusal()
        yield
    finally:
        registry[_CUDA_SLOT] = before


def _registry() -> Any:
    """PyTorch's table of device guards, by device type."""
    folder = Path(torch.__file__).parent / "lib"
    for library in ("libc10.so", "libc10.dylib", "c10.dll"):
        if (folder / library).exists():
            for symbol in _REGISTRY:
                with contextlib.suppress(ValueError):
                    return (ctypes.c_void_p * _SLOTS).in_dll(ctypes.CDLL(str(folder / library)), symbol)
    raise _refusal()


def _refusal() -> TorchUnavailable:
    return TorchUnavailable(
        f"PyTorch {torch.__version__} cannot pretend to have a GPU in this build: capture on cpu, with PyTorch 2.11 or "
        "newer, or on a machine with a GPU"
    )


_ENGINE = run_backward.__code__
_WRAPPERS = ("__torch_dispatch__", "run_op", "inner", "_fn", "device_of")


def asked_by_engine(frame: FrameType | None) -> bool:
    """True if ``frame``, which asks for a tensor's device, was called by the autograd engine itself."""
    while frame is not None and frame.f_code.co_name in _WRAPPERS:
        frame = frame.f_back
    return frame is not None and frame.f_code is _ENGINE


def with_true_device(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Correct the device in ``kwargs`` of an op that the engine issues: it creates tensors on the CPU, where it takes
    gradients to be. Left alone is the backward of a copy between devices, which the program wrote."""
    if not _active or kwargs["device"] != CPU or not asked_by_engine(sys._getframe(1)):
        return kwargs
    node: Any = current_autograd_node()
    if func is _TO_COPY and node is not None and node.name().startswith(("ToCopy", "CopyBackwards")):
        return kwargs
    like = args[0].fake_device if args and isinstance(args[0], FakeTensor) else CUDA
    return {**kwargs, "device": like}


def is_redundant_copy(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """True for a copy of a gradient to the device it is on, which the engine issues because it was told otherwise."""
    if not _active or func is not _TO_COPY or not asked_by_engine(sys._getframe(1)):
        return False
    return bool(args[0].fake_device == kwargs["device"] and kwargs.get("dtype") in (None, args[0].dtype))


(_TO_COPY,) = by_op({"aten._to_copy.default": None})


# -- torch.cuda ------------------------------------------------------------------------------------


Answers = dict[str, Any]
_USED = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached")
_IGNORED = ("empty_cache", "reset_peak_memory_stats", "reset_accumulated_memory_stats", "synchronize")


_STATES = ("_lazy_call", "get_rng_state", "get_rng_state_all", "initial_seed", "set_rng_state", "set_rng_state_all")
"""Names of ``torch.cuda.random`` that ``torch.cuda`` has, too."""


def _no_context(*args: object, **kwargs: object) -> contextlib.AbstractContextManager[None]:
    del args, kwargs
    return contextlib.nullcontext()


def _answers(gpu: Gpu, note: Callable[[str], None]) -> Iterator[tuple[Any, Answers]]:
    """Modules of PyTorch, each with the attributes that answer for the GPU."""

    def counter(value: Any) -> Answer:
        def read(*args: object, **kwargs: object) -> Any:
            del args, kwargs
            note("the program's own queries of used GPU memory return 0")
            return value

        return read

    ignored, cuda, memory = answer(None), torch.cuda, counter((gpu.memory_bytes, gpu.memory_bytes))
    common = {
        **dict.fromkeys(_USED, counter(0)),
        **dict.fromkeys(_IGNORED, ignored),
        "device_count": device_count,
        "is_available": answer(True),
        "current_stream": current_stream,
        "set_stream": set_stream,
    }
    counters = {"mem_get_info": memory, "memory_stats": counter({}), "memory_summary": counter("")}
    own = _of_cuda(gpu)
    yield cuda, {**common, **counters, **own}
    yield cuda.random, {name: own[name] for name in _STATES}
    history: Answers = dict.fromkeys(("_record_memory_history", "_dump_snapshot"), counter(None))
    yield cuda.memory, {**common, **counters, **history, "_snapshot": counter({"segments": [], "device_traces": []})}
    yield cuda.nvtx, dict.fromkeys(("range_push", "range_pop", "range_start", "range_end", "mark"), ignored)
    yield cuda.profiler, dict.fromkeys(("start", "stop"), ignored)
    yield (
        torch.backends.cudnn,
        {
            "is_available": answer(gpu.nvidia),
            "version": answer(91900),
            "is_acceptable": answer(False),  # else recurrent layers would flatten their weights
        },
    )
    yield torch.backends.cuda, {"is_built": answer(True)}
    accelerator: Any = getattr(torch, "accelerator", None)
    if accelerator is not None:
        yield (
            accelerator,
            {
                **common,
                **dict.fromkeys(("current_device_index", "current_device_idx"), current_device),
                **dict.fromkeys(("set_device_index", "set_device_idx"), set_device),
                "current_accelerator": lambda check_available=False: torch.device("cuda"),
                "device_index": _no_context,
                "get_memory_info": memory,
            },
        )
    core, answers = core_answers(torch.device("cuda"))
    yield core, answers | core_names()
    yield fake_module, {"init_gpu_context": ignored}  # there is no context to create


def _of_cuda(gpu: Gpu) -> Answers:
    """Answers that only ``torch.cuda`` gives, apart from its counters."""
    ignored, fresh = answer(None), torch.zeros(16, dtype=torch.uint8)
    return {
        **dict.fromkeys(("_lazy_init", "init", "_lazy_call", "ipc_collect", "_sleep"), ignored),
        **dict.fromkeys(("reset_max_memory_allocated", "reset_max_memory_cached"), ignored),
        **dict.fromkeys(("set_rng_state", "set_rng_state_all", "set_per_process_memory_fraction"), ignored),
        **dict.fromkeys(("Stream", "ExternalStream"), Stream),
        "stream": in_stream,
        **dict.fromkeys(("device", "device_of"), _no_context),
        "is_initialized": answer(True),
        **dict.fromkeys(("can_device_access_peer", "is_current_stream_capturing"), answer(False)),
        "get_sync_debug_mode": answer(0),
        "set_sync_debug_mode": ignored,
        "get_rng_state": answer(fresh),
        "get_rng_state_all": answer([fresh]),
        "initial_seed": answer(0),
        "set_device": set_device,
        "current_device": current_device,
        "current_blas_handle": answer(0),
        "utilization": answer(0),
        "default_stream": answer(DEFAULT_STREAM),
        "Event": Event,
        "get_device_properties": answer(_properties(gpu)),
        "get_device_name": answer(gpu.name),
        "get_device_capability": answer(gpu.capability),
        "get_arch_list": answer([f"sm_{gpu.capability[0]}{gpu.capability[1]}"]),
        "is_bf16_supported": lambda including_emulation=True: bool(including_emulation or gpu.capability >= (8, 0)),
        "is_tf32_supported": answer(gpu.capability >= (8, 0)),
    }


def _properties(gpu: Gpu) -> SimpleNamespace:
    return SimpleNamespace(
        name=gpu.name,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=gpu.memory_bytes,
        multi_processor_count=gpu.multiprocessors,
        warp_size=32,
        is_integrated=False,
        is_multi_gpu_board=False,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        gcnArchName=gpu.name,
    )
