"""Tensors, storages and kernels of dumped graphs, while they are put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tensortide.dtypes import storage_bytes
from tensortide.graph.handles import contiguous
from tensortide.graph.model import UNKNOWN_DEVICE, Phase, Role, Source, Storage, Tensor, Value
from tensortide.graph.strides import reshaped
from tensortide.importers.inductor.types import TensorType, evaluated, symbols_of


class Block(msgspec.Struct):
    """A storage: bytes, and what is known of its life. ``born`` None: it exists before the step; ``kept``: beyond its
    end. It is used at kernel ``last`` for the last time, and resident until kernel ``until`` at least."""

    name: str
    nbytes: int
    device: str
    role: Role
    born: int | None
    persistent: bool
    kept: bool = False
    last: int = -1
    until: int = 0

    def storage(self, count: int) -> Storage:
        """As it is in a graph of ``count`` ops."""
        born = None if self.born is not None and self.born >= count else self.born
        death = None if self.persistent or self.kept else min(count, max(self.until, self.last + 1, (born or 0) + 1))
        return Storage(self.nbytes, self.device, self.role, None if self.persistent else born, death, self.name)


class Kernel(msgspec.Struct):
    """An op: what it calls, with which values, and its outputs as they turn up (``path`` in its result, tensor).
    ``typed``: it has one output, itself."""

    label: str
    name: str
    text: str
    phase: Phase
    source: Source | None
    typed: bool
    values: tuple[Value, ...] = ()
    named: tuple[tuple[str, Value], ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: list[tuple[tuple[int, ...], int]] = []


class Assembly:
    """Graph under assembly. ``bindings`` are the values of symbols; ``unbound`` the symbols without one, and
    ``unknown`` the tensors whose size depends on those. Tensors have ``names`` and ``types`` in the dump."""

    def __init__(self, bindings: Mapping[str, int]) -> None:
        self.bindings = bindings
        self.unbound: set[str] = set()
        self.unknown: list[int] = []
        self.tensors: list[Tensor] = []
        self.names: list[str] = []
        self.types: list[TensorType] = []
        self.blocks: list[Block] = []
        self.kernels: list[Kernel] = []

    def block(self, tensor: int) -> Block:
        """The storage that ``tensor`` lies in."""
        return self.blocks[self.tensors[tensor].storage]

    def fresh(self, name: str, kind: TensorType, role: Role, born: int | None, persistent: bool = False) -> int:
        """A tensor in a storage of its own. Raises Bad for a dimension that is no size."""
        shape, known = self._shape(kind)
        strides = self._strides(kind, shape, known, ())
        reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))  # to the last element
        nbytes = storage_bytes(kind.dtype, (reach + 1,)) if known and 0 not in shape else 0
        self.blocks.append(Block(name, nbytes, kind.device or UNKNOWN_DEVICE, role, born, persistent))
        return self._add(name, kind, Tensor(len(self.blocks) - 1, kind.dtype, shape, strides), known)

    def output(self, index: int, name: str, kind: TensorType, path: tuple[int, ...]) -> int:
        """An output of the kernel ``index``: a view of its first tensor, that tensor written in place, or new.

        Raises Bad for a dimension that is no size.
        """
        kernel = self.kernels[index]
        shape, known = self._shape(kind)
        source = self.tensors[kernel.inputs[0]] if kernel.inputs else None
        op = kernel.name.removeprefix("torch.ops.")
        twin = next((tensor for at, tensor in kernel.outputs if at == path), None)
        strides: tuple[int, ...] | None = None
        if twin is not None:  # the same part of the result under another name
            source, strides = self.tensors[twin], self.tensors[twin].strides
        elif source is not None and writes_in_place(op):
            strides = source.strides
        elif source is not None:
            strides = strides_of_view(op, kernel.values, source.shape, source.strides, shape)
        if source is None or strides is None:
            tensor = self.fresh(name, kind, Role.TEMPORARY, index)
        else:
            view = Tensor(source.storage, kind.dtype, shape, self._strides(kind, shape, known, strides))
            tensor = self._add(name, kind, view, known)
        kernel.outputs.append((path, tensor))
        self.use(tensor, index)
        return tensor

    def use(self, tensor: int, index: int) -> None:
        """The kernel ``index`` uses ``tensor``."""
        block = self.block(tensor)
        block.last = max(block.last, index)

    def _add(self, name: str, kind: TensorType, tensor: Tensor, known: bool) -> int:
        if not known:
            self.unknown.append(len(self.tensors))
        self.tensors.append(tensor)
        self.names.append(name)
        self.types.append(kind)
        return len(self.tensors) - 1

    def _strides(
        self, kind: TensorType, shape: tuple[int, ...], known: bool, derived: Sequence[int]
    ) -> tuple[int, ...]:
        """Strides of a tensor: from the dump, else as ``derived`` from the op, else dense."""
        if kind.strides is not None and known:
            return tuple(evaluated(stride, self.bindings) for stride in kind.strides)
        return tuple(derived) if len(derived) == len(shape) else contiguous(shape)

    def _shape(self, kind: TensorType) -> tuple[tuple[int, ...], bool]:
        """Its shape, and whether all of it is known: 0 stands for a dimension with a symbol that has no value."""
        symbols = [symbols_of(dim) for dim in kind.dims]
        missing = set().union(*symbols) - self.bindings.keys()
        self.unbound |= missing
        dims = zip(kind.dims, symbols, strict=True)
        return tuple(0 if names & missing else evaluated(dim, self.bindings) for dim, names in dims), not missing


# --- views ---------------------------------------------------------------------------------------------

_RESHAPING = frozenset(
    ["view", "reshape", "_unsafe_view", "view_as", "squeeze", "unsqueeze", "alias", "detach", "flatten", "unflatten"]
)
_PARTS = frozenset(["slice", "narrow", "split", "split_with_sizes", "chunk"])
_OTHERS = frozenset(
    ["select", "unbind", "diagonal", "unfold", "as_strided", "view_as_real", "view_as_complex", "real", "imag", "_conj"]
)


def writes_in_place(op: str) -> bool:
    """Return whether ``op`` (``aten.copy_.default``) writes its first tensor and returns it."""
    name = _base(op)
    return name.endswith("_") and not name.endswith("__")


def strides_of_view(
    op: str, arguments: Sequence[Value], shape: tuple[int, ...], strides: tuple[int, ...], result: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of the ``result`` of ``op``, if it is a view of its first tensor, of ``shape`` and ``strides``; else
    None. A reshape is a view where strides for it exist. Where strides do not follow, dense ones stand in."""
    name = _base(op)
    dims = arguments[1] if len(arguments) > 1 else ()
    match name:
        case "permute" if isinstance(dims, tuple) and len(dims) == len(shape):
            return _permuted(strides, dims)
        case "t" | "transpose":
            first, second = (arguments[1], arguments[2]) if name == "transpose" and len(arguments) > 2 else (0, -1)
            return _swapped(strides, first, second)
        case "expand" if len(result) >= len(shape):
            new = len(result) - len(shape)
            kept = [
                stride if size == now else 0 for stride, size, now in zip(strides, shape, result[new:], strict=True)
            ]
            return (*((0,) * new), *kept)
        case "reshape":
            return reshaped(shape, strides, result)
        case _ if name in _RESHAPING:
            return reshaped(shape, strides, result) or contiguous(result)
        case _ if name in _PARTS and len(result) == len(shape):
            return strides
        case _ if name in _OTHERS:
            return contiguous(result)
    return None


def _base(op: str) -> str:
    parts = op.split(".")
    return parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims") else ""


def _permuted(strides: tuple[int, ...], dims: tuple[Value, ...]) -> tuple[int, ...] | None:
    order = [dim for dim in dims if isinstance(dim, int) and -len(strides) <= dim < len(strides)]
    return tuple(strides[dim] for dim in order) if len(order) == len(strides) else None


def _swapped(strides: tuple[int, ...], first: Value, second: Value) -> tuple[int, ...] | None:
    if len(strides) < 2:
        return strides
    swapped, dims = list(strides), range(-len(strides), len(strides))
    if not (isinstance(first, int) and isinstance(second, int) and first in dims and second in dims):
        return None
    swapped[first], swapped[second] = swapped[second], swapped[first]
    return tuple(swapped)
