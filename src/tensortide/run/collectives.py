"""Communication between processes: which arguments its ops write, which ops are made of others, and which are refused.

Schemas of communication ops declare no writes, and backends go on reading and writing after an op has returned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tensortide.recorder.torch_compat import DispatchKey
from tensortide.run.torch_compat import DispatchKeySet, WithKeys, excluded_keys, included_keys, key_of_device

NAMESPACES = frozenset(
    {
        *("c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional"),
        *("_dtensor", "fsdp", "symm_mem"),
    }
)


@dataclass(frozen=True, slots=True)
class Communication:
    """Facts of a communication op. ``writes``: names of the arguments that it writes, on some rank at least.
    ``composite``: it is made of ops that are followed one by one instead."""

    writes: tuple[str, ...] = ()
    composite: bool = False


_FOLLOWED = Communication(composite=True)
_IN_PLACE = Communication(("tensors",))
_LISTS = Communication(("output_tensors",))
_SINGLE = Communication(("output_tensor",))
_COALESCED = Communication(("outputs",))
_READS = Communication()

COMMUNICATIONS: dict[str, Communication] = {
    **{f"c10d::{name}": _IN_PLACE for name in ("allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_")},
    **{f"c10d::{name}": _IN_PLACE for name in ("recv_", "recv_any_source_")},
    **{f"c10d::{name}": _LISTS for name in ("allgather_", "alltoall_", "gather_", "reduce_scatter_", "scatter_")},
    **{f"c10d::{name}": _SINGLE for name in ("_allgather_base_", "_reduce_scatter_base_")},
    **{
        f"c10d::{name}": _COALESCED for name in ("allgather_into_tensor_coalesced_", "reduce_scatter_tensor_coalesced_")
    },
    "c10d::allgather_coalesced_": Communication(("output_lists",)),
    "c10d::alltoall_base_": Communication(("output",)),
    **{f"c10d::{name}": _READS for name in ("barrier", "check_for_nan", "monitored_barrier_", "send")},
    **{
        f"_c10d_functional::{name}": _FOLLOWED
        for name in (
            *("all_gather_into_tensor", "all_gather_into_tensor_coalesced", "all_gather_into_tensor_out"),
            *("all_reduce", "all_reduce_", "all_reduce_coalesced", "all_reduce_coalesced_", "all_to_all_single"),
            *("batch_p2p_ops", "broadcast", "broadcast_", "irecv", "isend"),
            *("reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "reduce_scatter_tensor_out"),
            *("wait_tensor", "_wrap_tensor_autograd"),
        )
    },
    **{
        f"_c10d_functional_autograd::{name}": _FOLLOWED
        for name in ("all_gather_into_tensor", "all_to_all_single", "reduce_scatter_tensor")
    },
    **{
        f"c10d_functional::{name}": _FOLLOWED
        for name in (
            *("all_gather_into_tensor", "all_gather_into_tensor_coalesced", "all_reduce", "all_reduce_coalesced"),
            *("all_to_all_single", "batch_p2p_ops", "broadcast", "irecv", "isend"),
            *("reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "wait_tensor"),
        )
    },
    **{f"_dtensor::{name}": _FOLLOWED for name in ("mesh_get_process_group", "shard_dim_alltoall")},
    **{f"fsdp::{name}": _FOLLOWED for name in ("all_gather_copy_in", "chunk_cat", "copy_", "split_with_sizes_copy")},
    # since PyTorch 2.15
    "fsdp::chunk_cat_mixed_dtype": Communication(("out",)),
    "fsdp::record_grad_output_stream": _READS,
}
"""Communication ops that can run under a budget, by name. Those of ``symm_mem`` write the memory of other processes."""

WAIT = "wait_tensor"
_GROUP, _WORK = "torch.classes.c10d.ProcessGroup", "torch.classes.c10d.Work"


def communicates(schema: Any) -> bool:
    """True for the schema of an op in which other processes take part."""
    if schema.name.partition("::")[0] in NAMESPACES:
        return True
    return any(kind in str(part.type) for part in (*schema.arguments, *schema.returns) for kind in (_GROUP, _WORK))


@contextlib.contextmanager
def listening(mode: Any) -> Iterator[None]:
    """Let ``mode`` see the ops inside the one at hand, also where the compiled core has switched all modes off."""
    with mode:
        excluded = excluded_keys()
        for key in (DispatchKey.Python, DispatchKey.PythonTLSSnapshot):
            excluded = excluded.remove(key)
        with WithKeys(included_keys(), excluded):
            yield


def followed(mode: Any, func: Any, tensors: list[torch.Tensor], args: Any, kwargs: dict[str, Any]) -> Any:
    """Run the composite ``func``, whose arguments are ``tensors`` among others, such that ``mode`` sees its ops."""
    if not tensors:
        return func(*args, **kwargs)
    key = getattr(DispatchKey, key_of_device(tensors[0].device.type))
    with listening(mode):
        return func.redispatch(DispatchKeySet(key), *args, **kwargs)


def work_of(result: Any) -> Any:
    """The Work in the ``result`` of an op; None if there is none."""
    for item in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(item, torch.ScriptObject):
            return torch.distributed.Work.unbox(item)
    return None
