"""Everything that a live budget uses of PyTorch beyond its public interface and ``recorder/torch_compat.py``."""

from __future__ import annotations

from typing import Any

from tensortide.recorder.torch_compat import found, lacking  # isort: skip # first: it says what is wrong with PyTorch

import torch

try:
    import torch._ops as dispatcher
    from torch import _conj as conjugate_view
    from torch import _neg_view as negative_view
    from torch._C import DispatchKeySet, Future
    from torch._C import _AutoDispatchBelowAutograd as BelowAutograd
    from torch._C import _construct_storage_from_data_pointer as storage_at
    from torch._C import _DisableAutocast as NoAutocast
    from torch._C import _DisableTorchDispatch as NoModes
    from torch._C import _dispatch_key_for_device as key_of_device
    from torch._C import _dispatch_tls_is_dispatch_key_excluded as is_excluded
    from torch._C import _dispatch_tls_local_exclude_set as excluded_keys
    from torch._C import _dispatch_tls_local_include_set as included_keys
    from torch._C import _ForceDispatchKeyGuard as WithKeys
    from torch._C import _get_dispatch_mode as mode_of_kind
    from torch._C import _get_dispatch_stack_at as mode_at
    from torch._C import _len_torch_dispatch_stack as modes
    from torch._C import _pop_torch_dispatch_stack as pop_mode
    from torch._C import _push_on_torch_dispatch_stack as push_mode
    from torch._C import _set_throw_on_mutable_data_ptr as refuse_writes
    from torch._C import _storage_Use_Count as owners_of_storage
    from torch._C import _TorchDispatchModeKey as ModeKind
    from torch._C._autograd import _disable_profiler_legacy as stop_profiler
    from torch._C._autograd import _enable_profiler_legacy as start_profiler
    from torch._C._autograd import _profiler_enabled as is_profiled
    from torch._C._profiler import ProfilerConfig, ProfilerState
    from torch._C._profiler import _ExperimentalConfig as ExperimentalConfig
except ImportError as error:
    raise lacking("a memory budget", error) from error

__all__ = [
    "Backend",
    "BelowAutograd",
    "C",
    "DispatchKeySet",
    "ExperimentalConfig",
    "Future",
    "ModeKind",
    "NoAutocast",
    "NoModes",
    "ProfilerConfig",
    "ProfilerState",
    "Reducer",
    "WithKeys",
    "conjugate_view",
    "dispatcher",
    "excluded_keys",
    "included_keys",
    "is_dense",
    "is_excluded",
    "is_profiled",
    "key_of_device",
    "mode_at",
    "mode_of_kind",
    "modes",
    "negative_view",
    "owners_of_storage",
    "owners_of_tensor",
    "pop_mode",
    "push_mode",
    "refuse_writes",
    "start_profiler",
    "stop_profiler",
    "storage_at",
    "swap_data_ptr",
]

C: Any = torch._C
"""For names that are put together, and asked for before use."""
ATTRIBUTES: dict[Any, tuple[str, ...]] = {
    C: ("_set_default_dtype", "_set_deterministic_algorithms"),
    torch.UntypedStorage: ("_cdata", "_share_fd_cpu_", "_share_filename_cpu_"),
}
"""Private attributes that are used, by an owner of them; and those that some versions lack, which are looked for."""
owners_of_tensor: Any = torch.Tensor._use_count  # type: ignore[attr-defined]
"""References of C++ to a tensor."""
swap_data_ptr: Any = getattr(torch.UntypedStorage, "_swap_data_ptr_", None)
"""Exchanges the bytes of two storages; None before PyTorch 2.12."""
OPTIONAL = ("_get_fp32_precision_getter", "_set_fp32_precision_setter")
Backend: Any = found("torch._C._distributed_c10d.Backend")
"""Base of the backends of communication that are written in C++; None where PyTorch is built without any."""
Reducer: Any = found("torch._C._distributed_c10d.Reducer")
"""The part of DistributedDataParallel that is written in C++; None where PyTorch is built without communication."""
_dense: Any = found("torch._prims_common.is_non_overlapping_and_dense_or_false")


def is_dense(tensor: torch.Tensor) -> bool:
    """True if ``tensor`` has each element between its first and its last once, in any order of dimensions."""
    if tensor.is_contiguous() or _dense is not None:
        return tensor.is_contiguous() or bool(_dense(tensor))
    order = sorted(range(tensor.dim()), key=tensor.stride)
    return tensor.permute(order[::-1]).is_contiguous()


def aot_autograd() -> Any:
    """The maker of backends over AOTAutograd; its import takes seconds."""
    try:
        from torch._dynamo.backends.common import aot_autograd as made
    except ImportError as error:
        raise lacking("compiled execution of plans", error) from error
    return made


def aot_config() -> Any:
    """The settings of AOTAutograd."""
    from torch._functorch import config

    return config


def fake_mode_of(module: Any) -> Any:
    """The mode of the fake tensors that a traced graph has as examples of its values."""
    from torch._guards import detect_fake_mode

    return detect_fake_mode([node.meta.get("val") for node in module.graph.nodes])
