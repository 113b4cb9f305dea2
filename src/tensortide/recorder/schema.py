"""Facts about an op that the recorder needs, read once from its dispatcher schema."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from tensortide.graph.communication import writes_of
from tensortide.graph.model import Call, Value, count_slots
from tensortide.recorder.torch_compat import (
    PROFILER_MARKS,
    DispatchKey,
    FakeTensor,
    HigherOrderOperator,
    disable_current_modes,
    generic_scan,
    has_any_kernel,
    has_kernel,
    parse_schema,
)

_QUERY_NAMES = (
    *("size", "stride", "storage_offset", "numel", "is_contiguous"),
    *("sym_size", "sym_stride", "sym_storage_offset", "sym_numel", "sym_is_contiguous"),
    *("dim", "is_same_size", "is_strides_like_format", "is_non_overlapping_and_dense"),
    "_has_compatible_shallow_copy_type",
)


def _overloads(packets: Iterable[Any]) -> Iterator[Any]:
    return (getattr(packet, name) for packet in packets for name in packet.overloads())


PASSED_ON = frozenset(
    _overloads(
        [getattr(torch.ops.aten, name) for name in _QUERY_NAMES if hasattr(torch.ops.aten, name)]
        + [torch.ops.prim.device, torch.ops.prim.layout]
        + list(PROFILER_MARKS)
    )
)
"""Queries of a tensor's metadata, and profiler marks; they are not ops of the step."""

_RESIZING = frozenset({"aten::resize_", "aten::resize_as_", "aten::resize", "aten::set_"})
_TAGS = {
    torch.Tag.pointwise: "pointwise",
    torch.Tag.nondeterministic_seeded: "random",
    torch.Tag.data_dependent_output: "data_dependent",
    torch.Tag.dynamic_output_shape: "dynamic_shape",
}


_NO_SCHEMA = parse_schema("none() -> ()")


class Schema:
    """The parts of an op's schema that its record needs. A higher-order operator has no schema; its arguments are named
    by position."""

    __slots__ = ("composite", "fresh", "may_resize", "mutated_names", "name", "names", "tags")

    def __init__(self, func: Any) -> None:
        opaque = isinstance(func, HigherOrderOperator)
        schema = _NO_SCHEMA if opaque else func._schema
        self.name = f"higher_order.{func.name()}" if opaque else str(func)
        self.names: tuple[str, ...] = tuple(a.name for a in schema.arguments)
        written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        self.mutated_names = frozenset([*written, *writes_of(schema.name)])
        self.fresh = schema.name in ("aten::lift_fresh", "aten::lift_fresh_copy", "aten::lift")
        self.may_resize = schema.name in _RESIZING or any(a.is_out for a in schema.arguments)
        self.composite, self.tags = (False, ()) if opaque else (_composite(func), _tags(func))

    def call(self, values: tuple[Value, ...], named: tuple[tuple[str, Value], ...], returns: Value) -> Call:
        """The Call of positional ``values`` and keyword arguments ``named``."""
        arguments = self.named(values, named)
        mutated: list[int] = []
        slot = 0
        for name, value in arguments:
            slots = count_slots(value)
            if name in self.mutated_names:
                mutated.extend(range(slot, slot + slots))
            slot += slots
        return Call(self.name, arguments, len(values), tuple(mutated), returns, self.tags)

    def named(self, values: tuple[Value, ...], named: tuple[tuple[str, Value], ...]) -> tuple[tuple[str, Value], ...]:
        """Give positional ``values`` their names, before those of keyword arguments."""
        names = self.names or [f"arg{i}" for i in range(len(values))]
        return (*zip(names, values, strict=False), *named)

    def has_kernel_for(self, tensor: torch.Tensor) -> bool:
        """True if a composite op has a kernel of its own for ``tensor``, one that is nested or on CUDA."""
        return tensor.is_nested or (tensor.is_cuda and self.name in _FUSED_ON_CUDA)


_FUSED_ON_CUDA = ("aten._fused_rms_norm.default",)
"""Ops that are made of others, but have a kernel of their own on CUDA."""


def _composite(func: Any) -> bool:
    """True if an op only has a decomposition. One with a kernel as well (silu_backward) runs its kernel."""
    if not has_any_kernel(func.name()):  # a metadata query that only subclasses implement
        return False
    return has_kernel(func.name(), DispatchKey.CompositeImplicitAutograd) and not has_kernel(
        func.name(), DispatchKey.CPU
    )


def _tags(func: Any) -> tuple[str, ...]:
    return tuple(sorted([*(_TAGS[tag] for tag in func.tags if tag in _TAGS), *(["view"] if func.is_view else [])]))


@functools.cache
def schema_of(func: Any) -> Schema:
    """The Schema of an op, computed once."""
    return Schema(func)


def eager_body(func: Any) -> Callable[..., Any] | None:
    """The function that runs a higher-order operator op by op in eager execution; None if it is unknown."""
    if func.name() == "scan":
        return lambda *args: generic_scan(*args[:-1], additional_inputs=args[-1])
    if func.name() in _DENSE:
        kernel: Callable[..., Any] = func.py_kernels[DispatchKey.CompositeExplicitAutograd]
        return kernel
    return None


_DENSE = frozenset({"map_impl", "flex_attention", "flex_attention_backward"})


EMBED_LIMIT = 64


def embedded(value: torch.Tensor) -> str:
    """The values of a small constant tensor as text (``dtype shape values``), so that the op can be executed again."""
    constant = value.constant if isinstance(value, FakeTensor) else value
    if constant is None or constant.numel() > EMBED_LIMIT or constant.device.type != "cpu":
        return f"{value.dtype} {tuple(value.shape)} ..."
    with disable_current_modes():
        items = [repr(item) for item in constant.detach().flatten().tolist()]
    return f"{value.dtype} {tuple(value.shape)} [{', '.join(items)}]"


@functools.cache
def _overload(name: str, overload: str) -> Any:
    """The op ``aten::mm`` with this overload; None if this process has no such op."""
    namespace, _, base = name.partition("::")
    return getattr(getattr(getattr(torch.ops, namespace), base, None), overload, None)


def is_composite(name: str, overload: str) -> bool:
    """Tell whether an op by name is only made of others; one that is unknown here is not."""
    func = _overload(name, overload)
    return func is not None and schema_of(func).composite


def only_composite(name: str) -> bool:
    """Tell whether every overload of an op is only made of others; one that is unknown here has none that is."""
    namespace, _, base = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return packet is not None and all(
        is_composite(name, overload) for overload in packet.overloads() if not overload.endswith("out")
    )


def tags_of(name: str, overload: str) -> tuple[str, ...]:
    """Tags of an op by name; none of one that is unknown here."""
    func = _overload(name, overload)
    return () if func is None else schema_of(func).tags
