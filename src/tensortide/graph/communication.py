"""Ops that communicate between processes: their part in it, what they write, and what they exchange with whom.

Collectives are told in ``collectives.py``; here are the ops that belong to none, and questions about all of them.
"""

from __future__ import annotations

import difflib
import re
from enum import Enum
from typing import NamedTuple

from tensortide.errors import TensortideError
from tensortide.graph.collectives import COLLECTIVES, Collective, Held, ops_in
from tensortide.graph.model import Const, OpView, Tensor

PROCESS_GROUP = "process group "
"""Before the name of a process group, where an op takes the group itself; functional ones take the name."""


class Part(Enum):
    """The part that an op has in communication."""

    MOVES = "moves data between processes"
    REDUCES = "combines the data of several processes"
    MULTIPLIES = "computes a product of data on their way between processes"
    WAITS = "waits for data or for other processes"
    PACKS = "copies data within this process, before or after they are moved"
    NAMES = "names a group or a stream: no data"


class CommunicationOp(NamedTuple):
    """Facts of a communication op. ``kind``: the name of its collective; empty for none. ``writes``: the arguments that
    it writes, on some rank at least, though its schema does not say so. ``by_parts``: a live budget follows the ops
    that it is made of, one by one."""

    part: Part
    kind: str
    writes: tuple[str, ...]
    by_parts: bool


_OTHERS = (
    (Part.MOVES, "_c10d_functional: batch_p2p_ops; c10d_functional: batch_p2p_ops"),
    (
        Part.WAITS,
        "c10d: check_for_nan; _c10d_functional: wait_tensor _wrap_tensor_autograd; c10d_functional: wait_tensor",
    ),
    (Part.NAMES, "_dtensor: mesh_get_process_group; fsdp: record_grad_output_stream"),
    (Part.PACKS, "fsdp: all_gather_copy_in chunk_cat copy_ split_with_sizes_copy; fsdp(out): chunk_cat_mixed_dtype"),
)
"""Ops of communication that belong to no collective."""
_BY_PARTS = ("_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor", "fsdp")
_WHOLE = ("fsdp::record_grad_output_stream", "fsdp::chunk_cat_mixed_dtype")
"""Ops of these namespaces, since PyTorch 2.15, that are not made of others."""


def _part(row: Collective) -> Part:
    if row.has is Held.NOTHING:
        return Part.WAITS
    return Part.REDUCES if row.reduces else Part.MOVES


def _op(name: str, mark: str, part: Part, kind: str) -> CommunicationOp:
    by_parts = name.partition("::")[0] in _BY_PARTS and name not in _WHOLE
    if mark == "*":
        return CommunicationOp(Part.MULTIPLIES, kind, (), by_parts)
    return CommunicationOp(part, kind, (mark,) if mark else (), by_parts)


OPS: dict[str, CommunicationOp] = {
    name: _op(name, mark, part, kind)
    for part, kind, text in (
        *((_part(row), row.name, row.torch) for row in COLLECTIVES.values()),
        *((part, "", text) for part, text in _OTHERS),
    )
    for name, mark in ops_in(text)
}
"""Communication ops of PyTorch whose effects are known, by name."""

COMMUNICATION = frozenset(name.partition("::")[0] for name in OPS)
"""Namespaces of ops that communicate."""
SYMMETRIC = "symm_mem"
"""The namespace of ops that write the memory of other processes."""
_REMOTE = frozenset({"c10d", "_c10d_functional", SYMMETRIC})


def _row(op: str) -> CommunicationOp | None:
    """The row of the op of a Graph (``c10d.allreduce_.default``)."""
    return OPS.get("::".join(op.split(".")[:2]))


def named(*parts: Part) -> list[str]:
    """Names of the communication ops that have one of ``parts``."""
    return [name for name, row in OPS.items() if row.part in parts]


def writes_of(name: str) -> tuple[str, ...]:
    """Names of the arguments that the communication op ``c10d::allreduce_`` writes, though its schema does not say so;
    none of other ops."""
    row = OPS.get(name)
    return () if row is None else row.writes


def moves_data(op: str) -> bool:
    """Return whether the op of a Graph (``c10d.allreduce_.default``) moves data between processes. One that has no row
    does, if it is of a namespace of collectives."""
    row = _row(op)
    if row is None:
        return op.partition(".")[0] in _REMOTE
    return row.part in (Part.MOVES, Part.REDUCES, Part.MULTIPLIES)


def kind_of(op: str) -> str | None:
    """The collective of the op of a Graph; None for an op that moves no data, or belongs to none."""
    row = _row(op)
    return row.kind or None if row is not None and moves_data(op) else None


def group_of(op: OpView) -> str:
    """The name of the process group of a communication op, such as ``data`` or ``expert``; empty if it has none."""
    given = dict(op.call.arguments)
    found = given.get("group_name", given.get("process_group"))
    if isinstance(found, Const):
        return found.value.removeprefix(PROCESS_GROUP)
    return found if isinstance(found, str) else ""


def peer_of(op: OpView) -> int:
    """The rank within its group to which a message is sent, or from which it comes; -1 for an op without one."""
    given = dict(op.call.arguments)
    found = given.get("dst", given.get("src"))
    return found if isinstance(found, int) else -1


def payload_bytes(op: OpView) -> int:
    """Bytes of the message of a collective, as ``COLLECTIVES`` counts them: of the largest argument or result in this
    process, a tensor or a list of them."""
    values = (*op.arguments.values(), *op.outputs)
    return max((sum(_regions(value).values()) for value in values), default=0)


def _regions(value: object) -> dict[Tensor, int]:
    """The bytes of each tensor in an argument."""
    if isinstance(value, Tensor):
        return {value: int(value.region_bytes)}
    if isinstance(value, tuple):
        return {tensor: nbytes for item in value for tensor, nbytes in _regions(item).items()}
    return {}


# -- names of any source ----------------------------------------------------------------------------

_KERNEL = re.compile(r"nccl(?:Symk?)?(?:Dev)?Kernel_([A-Za-z]+)")
"""A kernel of NCCL or RCCL. ``ncclDevKernel_Generic`` runs any function: its name does not say which."""
_TITLE = re.compile(r"(?:nccl|gloo|mpi|ucc|xccl):(\w+)")
"""The title of a collective in PyTorch's profiler."""
_SOURCES = {"nccl": _KERNEL, "profiler": _TITLE}
"""How names stand in what a source writes, unless it writes them as they are."""


_NAMED = {
    (source if source in _SOURCES else "", name): row
    for row in COLLECTIVES.values()
    for source, name in (("", row.name), *row.names())
}
"""Rows by source and name; the source is empty for names that stand as they are."""


def find(name: str) -> Collective | None:
    """The row that any source calls ``name``, or None: an op (``c10d::allreduce_``, or as Graphs have it), a title or
    kernel in a trace, a primitive, a name of Chakra's, Megatron's or DeepSpeed's, or our own.

    Examples:
        >>> find("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)").name
        'reduce_scatter'
        >>> find("nccl:_all_gather_base").name, find("psum").name, find("forward-recv").name
        ('all_gather', 'all_reduce', 'send_recv')
    """
    for source, written in _SOURCES.items():
        if match := written.search(name):
            return _NAMED.get((source, match[1]))
    return _NAMED.get(("", "::".join(name.split(".")[:2])))


def kind(name: str) -> Collective:
    """The row that any source calls ``name``. Raises TensortideError if none does; the message lists our own names."""
    found = COLLECTIVES.get(name) or find(name)
    if found is None:
        near = difflib.get_close_matches(name, COLLECTIVES, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise TensortideError(f"no collective is called {name!r}. {hint}Kinds: {', '.join(COLLECTIVES)}.")
    return found
