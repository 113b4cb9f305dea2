"""All private names of PyTorch that the package uses, with substitutes for versions that lack them.

A new version of PyTorch that breaks something breaks it here: at an import below, at an attribute in ``ATTRIBUTES``, or
at a name that some versions lack and that has a substitute here. Further names for the live budget are in
``run/torch_compat.py``, and those of PyTorch's compiler in ``recorder/compiled.py``. A test finds any other.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, TypeVar

from tensortide.errors import TorchUnavailable

OLDEST = (2, 4)
"""The oldest version that is supported."""

try:
    import torch
except (ImportError, OSError) as error:
    absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
    raise TorchUnavailable(
        "this needs PyTorch, which is not installed: pip install 'tensortide[torch]'"
        if absent
        else f"this needs PyTorch, which cannot be imported: {str(error).splitlines()[0]}"
    ) from error

VERSION = tuple(int(part) for part in re.findall(r"\d+", str(torch.__version__))[:2])
"""Major and minor version of PyTorch."""


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


if VERSION < OLDEST:
    raise TorchUnavailable(
        f"this needs PyTorch {_text(OLDEST)} or newer, and {torch.__version__} is installed: "
        "pip install --upgrade torch"
    )


def lacking(what: str, error: Exception) -> TorchUnavailable:
    """The error for ``what`` where this PyTorch lacks a name that it needs."""
    name = str(error).split(" (")[0]  # drop the path of the module
    return TorchUnavailable(
        f"{what} cannot use PyTorch {torch.__version__}: {name}; docs/compatibility.md has the versions that were tried"
    )


# -- names that all supported versions have ----------------------------------------------------------

try:
    import torch._subclasses.fake_tensor as fake_module
    import torch.utils._pytree as pytree
    from torch import _fused_adamw_ as fused_adamw_
    from torch import _fused_sgd_ as fused_sgd_
    from torch._C import DisableTorchFunctionSubclass, DispatchKey, parse_schema
    from torch._C import _current_autograd_node as current_autograd_node
    from torch._C import _current_graph_task_id as current_graph_task_id
    from torch._C import _dispatch_get_all_op_names as op_names
    from torch._C import _dispatch_has_kernel as has_any_kernel
    from torch._C import _dispatch_has_kernel_for_dispatch_key as has_kernel
    from torch._C import _dispatch_keyset_full_after as keys_below
    from torch._C import _len_torch_dispatch_stack as modes
    from torch._C import _set_grad_enabled as set_grad_enabled
    from torch._C._autograd import _get_sequence_nr as next_sequence_number
    from torch._decomp import decomposition_table
    from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensor,
        FakeTensorConverter,
        FakeTensorMode,
        UnsupportedFakeTensorException,
        UnsupportedOperatorException,
    )
    from torch._subclasses.meta_utils import MetaConverter
    from torch.autograd.function import BackwardCFunction, FunctionMeta
    from torch.autograd.function import _SingleLevelFunction as SingleLevelFunction
    from torch.autograd.graph import _engine_run_backward as run_backward
    from torch.optim.optimizer import _foreach_supported_types as _optimizers_types
    from torch.utils._device import DeviceContext
    from torch.utils._device import _device_constructors as device_constructors
    from torch.utils._foreach_utils import _foreach_supported_types as _clipping_types
    from torch.utils._mode_utils import no_dispatch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._python_dispatch import _disable_current_modes as without_modes
    from torch.utils._python_dispatch import _get_current_dispatch_mode as current_mode
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as current_modes
    from torch.utils._python_dispatch import _pop_mode_temporarily as without_last_mode
    from torch.utils.data.dataloader import _BaseDataLoaderIter as LoaderIterator
except ImportError as error:
    raise lacking("tensortide", error) from error

__all__ = [
    "ABOVE_AUTOGRAD",
    "ENGINE",
    "FOREACH_TYPES",
    "LOCAL_SCALAR",
    "OLDEST",
    "PROFILER_MARKS",
    "STAGE_RECEIVES",
    "VERSION",
    "BackwardCFunction",
    "DataDependentOutputException",
    "DeviceContext",
    "DisableTorchFunctionSubclass",
    "DispatchKey",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorConverter",
    "FakeTensorMode",
    "FunctionMeta",
    "HigherOrderOperator",
    "LoaderIterator",
    "MetaConverter",
    "OpOverload",
    "OpOverloadPacket",
    "SingleLevelFunction",
    "TorchDispatchMode",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "assign_buckets",
    "by_op",
    "compiled_calls",
    "core_answers",
    "current_autograd_node",
    "current_graph_task_id",
    "current_mode",
    "current_modes",
    "decomposition_table",
    "device_constructors",
    "disable_current_modes",
    "dispatch_keys",
    "ensure_cuda_guard",
    "fake_module",
    "forget_missing_gpu",
    "forget_rules_of_functions",
    "found",
    "fused_adamw_",
    "fused_sgd_",
    "generic_scan",
    "gradients_of_stage",
    "guard_of_data",
    "has_any_kernel",
    "has_kernel",
    "include_key",
    "includes_key",
    "key_above_autograd",
    "key_excluded",
    "key_included",
    "keys_below",
    "lacking",
    "modes",
    "nested_int",
    "next_sequence_number",
    "no_dispatch",
    "op_names",
    "parse_schema",
    "partitioner",
    "pytree",
    "run_backward",
    "set_grad_enabled",
    "without_last_mode",
]

FOREACH_TYPES: tuple[list[Any], ...] = (_optimizers_types, _clipping_types)
"""Lists of the tensor types for which optimizers and gradient clipping use foreach ops."""
LOCAL_SCALAR = torch.ops.aten._local_scalar_dense.default
PROFILER_MARKS = (torch.ops.profiler._record_function_enter_new, torch.ops.profiler._record_function_exit)

ATTRIBUTES: dict[Any, tuple[str, ...]] = {
    torch.Tensor: (
        *("_backward_hooks", "_base", "_cdata", "_indices", "_is_zerotensor", "_make_subclass"),
        *("_make_wrapper_subclass", "_nested_tensor_size", "_post_accumulate_grad_hooks"),
        *("_typed_storage", "_use_count", "_values", "_version"),
    ),
    torch.autocast: ("_enabled",),
    torch.UntypedStorage: ("_cdata", "_new_with_weak_ptr"),
    torch.nn.Module: ("_buffers", "_call_impl", "_compiled_call_impl", "_parameters"),
    torch.library.Library: ("_destroy",),
    torch.ops.aten.mm.default: ("_op", "_op_dk", "_opname", "_overloadname", "_overloadpacket", "_schema"),
    torch.autograd.graph.Node: ("_sequence_nr",),
    torch.autograd.Variable: ("_execution_engine",),
}
"""Private attributes that are used, by an object that has them."""


# -- names that some versions lack -------------------------------------------------------------------


def found(path: str) -> Any:
    """Import the object at the dotted ``path``; None if this PyTorch does not have it."""
    module, name = path.rsplit(".", 1)
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


GROUPS: Any = found("torch.distributed.distributed_c10d._world")
"""The process groups of this process; None without a distributed package."""

STAGE_RECEIVES = ("torch.distributed.pipelining.stage", "PipelineStage._recv_meta")
"""Module and name of the method by which a stage of a pipeline receives the shapes that another one sends."""


def gradients_of_stage(stage: Any) -> Any:
    """The message that the next stage of a pipeline sends to ``stage``: the shapes of the gradients of its outputs."""
    stages: Any = importlib.import_module(STAGE_RECEIVES[0])
    return stages._StageBackwardMeta(backward_metas=stages._derive_grad_metas(stage._stage_meta.outputs))


WHOLE_SHAPES = ("torch.distributed.tensor._sharding_prop", "ShardingPropagator._propagate_tensor_meta_non_cached")
"""Module and name of the method that runs an op on empty tensors of whole shapes, for the shape of its result."""


def rank_of_stage(stage: Any, number: int) -> int:
    """The rank, among all, that has the stage ``number`` of the pipeline of ``stage``."""
    return int(stage._resolve_peer_global_rank(number))


def forget_shardings() -> None:
    """Forget the layouts that distributed tensors have worked out: they name the groups of the rank that did so."""
    if "torch.distributed.tensor" in sys.modules:
        clear: Any = found("torch.distributed.tensor.debug._clear_sharding_prop_cache")
        if clear is not None:
            clear()


Row = TypeVar("Row")


def is_compiled(module: Any) -> bool:
    """True for a module that ``torch.compile`` made, or whose calls it compiles."""
    return "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None


def by_op(rows: Mapping[str, Row]) -> dict[Any, Row]:
    """``rows`` keyed by op overload instead of name (``aten.mm.default``), without ops that this PyTorch lacks."""
    return {op: row for name, row in rows.items() if (op := _op(name)) is not None}


def _op(name: str) -> Any:
    owner: Any = torch.ops
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner


generic_scan: Any = found("torch._higher_order_ops.scan.generic_scan")
"""Runs ``scan`` step by step; before 2.5 there is neither."""
ensure_cuda_guard: Any = found("torch._C._ensureCUDADeviceGuardSet") if VERSION >= (2, 11) else None
"""Installs a no-op guard in place of a CUDA guard without a device; without it no GPU can be pretended. 2.10 has it,
too, but leaves some tensors of a step on the CPU there."""


def forget_rules_of_functions() -> None:
    """Forget the rules that PyTorch's compiler has for each function of PyTorch, as it found them in their modules."""
    if "torch._dynamo.trace_rules" in sys.modules:
        made: Any = found("torch._dynamo.trace_rules.get_torch_obj_rule_map")
        if made is not None:
            made.cache_clear()


def forget_missing_gpu() -> None:
    """Keep the autograd engine of a CUDA build without a device from looking for the streams of one, from now on.

    The engine asks the process's accelerator, which is CUDA in such a build; PyTorch's device type for other vendors
    takes that place once it has a name. It has no device either, and no other use in a process without it.
    """
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != "cuda" or torch.cuda.is_available():
        return
    name = torch._C._get_privateuse1_backend_name()
    module: Any = ModuleType(f"torch.{name}", "A device type without a device.")
    module.is_available, module.device_count = (lambda: False), (lambda: 0)
    module._is_in_bad_fork, module.manual_seed_all = (lambda: False), (lambda seed: None)
    torch._C._rename_privateuse1_backend(name)
    torch._register_device_module(name, module)


include_key: Any = found("torch._C._dispatch_tls_set_dispatch_key_included")
"""Includes a dispatch key in all ops of this thread, or no longer."""
_parse_key: Any = found("torch._C._parse_dispatch_key")
includes_key: Any = found("torch._C._dispatch_tls_is_dispatch_key_included")
dispatcher: Any = found("torch._ops")
ABOVE_AUTOGRAD = "DeferredInit"
"""A dispatch key above autograd and autocast that PyTorch itself has no use for."""
key_above_autograd: Any = (
    _parse_key(ABOVE_AUTOGRAD)
    if _parse_key
    and include_key
    and hasattr(torch.library.Library, "fallback")
    and hasattr(dispatcher, "_compute_keyset")
    else None
)
"""The same; None where no handler can be registered for it."""
dispatch_keys: Any = found("torch._C._dispatch_keys")
"""The set of dispatch keys of a tensor."""


def guard_of_data(mode: Any) -> Any:
    """The function that a fake-tensor mode gives each of its tensors to, so that their memory is not read unnoticed."""
    warns = getattr(mode, "_allow_unsafe_data_ptr_access", False)
    name = "_set_warn_deprecated_on_mutable_data_ptr" if warns else "_set_throw_on_mutable_data_ptr"
    return found(f"torch._C.{name}")


nested_int: Any = found("torch._C._get_nested_int")
"""Makes the length of the ragged dimension of a nested tensor, by the number of its offsets and a factor."""
assign_buckets: Any = found("torch.distributed._compute_bucket_assignment_by_size")
"""Buckets of the gradients of DistributedDataParallel."""
ENGINE: Any = getattr(torch.autograd.Variable, "_execution_engine", None)
"""The autograd engine."""


@functools.cache
def partitioner() -> tuple[Any, Any]:
    """PyTorch's min-cut partitioner and its settings, either None where it is missing; the import takes a second.

    The settings of some versions have no memory budget.
    """
    made = found("torch._functorch.partitioners.min_cut_rematerialization_partition")
    return made, found("torch._functorch.config")


def core_answers(accelerator: torch.device) -> tuple[Any, dict[str, Any]]:
    """PyTorch's core, and its functions that tell of the accelerator, by name: with ``accelerator`` there."""
    core: Any = found("torch._C")
    return core, {"_get_accelerator": lambda *_: accelerator} if hasattr(core, "_get_accelerator") else {}


def compiled_calls() -> tuple[Any, str]:
    """Module and name of the function that every call of a compiled function passes its compiled callback to (None: run
    eagerly)."""
    dynamo = importlib.import_module("torch._dynamo.eval_frame")
    names = ("_callback_from_stance", "_maybe_set_eval_frame", "set_eval_frame")
    return dynamo, next(name for name in names if hasattr(dynamo, name))


@contextlib.contextmanager
def key_excluded() -> Iterator[None]:
    """Leave ``key_above_autograd`` out while active, if it is included."""
    included = key_above_autograd is not None and includes_key(key_above_autograd)
    if included:
        include_key(key_above_autograd, False)
    try:
        yield
    finally:
        if included:
            include_key(key_above_autograd, True)


@contextlib.contextmanager
def disable_current_modes() -> Iterator[None]:
    """Run without any mode while active."""
    with key_excluded(), without_modes():
        yield


@contextlib.contextmanager
def key_included() -> Iterator[None]:
    """Include ``key_above_autograd`` in all ops of this thread while active. Higher-order operators, which choose their
    kernel in Python and know no such key, are left out; their bodies are not."""
    keys_of, before = dispatcher._compute_keyset, includes_key(key_above_autograd)

    def without(*args: Any) -> Any:
        return keys_of(*args).remove(key_above_autograd)

    dispatcher._compute_keyset = without
    include_key(key_above_autograd, True)
    try:
        yield
    finally:
        include_key(key_above_autograd, before)
        dispatcher._compute_keyset = keys_of


def allocator_settings() -> str:
    """The settings of PyTorch's allocator for GPUs, as the program or its environment has made them."""
    settings = found("torch._C._accelerator_getAllocatorSettings")
    return os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") if settings is None else str(settings())
