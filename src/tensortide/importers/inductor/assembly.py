"""Tensors, storages and kernels of dumped graphs, while they are put together."""

from __future__ import annotations

from collections.abc import Mapping

from tensortide.graph.model import DTYPE_BYTES, OUTSIDE, UNKNOWN_DEVICE, Op, Phase, Role, Source, Storage, Tensor, Value
from tensortide.importers.inductor.types import Bad, TensorType, row_major, symbols_of
from tensortide.importers.inductor.views import strides_of_view, writes_in_place

__all__ = ["Assembly", "Kernel", "graph_op", "graph_tensor"]


class Block:
    """A storage: bytes, and what is known of its life. ``born`` None: it exists before the step."""

    __slots__ = ("born", "device", "kept", "last", "name", "nbytes", "persistent", "role", "until")

    def __init__(self, name: str, nbytes: int, device: str, role: Role, born: int | None, persistent: bool) -> None:
        self.name = name
        self.nbytes = nbytes
        self.device = device
        self.role = role
        self.born = born
        self.persistent = persistent
        self.kept = False  # beyond the end of the step
        self.last = -1
        self.until = 0  # alive until there at least

    def storage(self, count: int) -> Storage:
        """As it is in a graph of ``count`` ops."""
        born = None if self.born is not None and self.born >= count else self.born
        death = None if self.persistent or self.kept else min(count, max(self.until, self.last + 1, (born or 0) + 1))
        return Storage(self.nbytes, self.device, self.role, None if self.persistent else born, death, self.name)


class MadeTensor:
    """A tensor of a graph, and its name in the dump."""

    __slots__ = ("block", "dtype", "known", "name", "shape", "strides", "type")

    def __init__(self, name: str, block: int, kind: TensorType, shape: tuple[int, ...], known: bool) -> None:
        self.name = name
        self.block = block
        self.type = kind
        self.dtype = kind.dtype
        self.shape = shape
        self.known = known
        self.strides = row_major(shape)


class Kernel:
    """An op: what it calls, with which values, and its outputs as they turn up (``path`` in its result, tensor)."""

    __slots__ = ("inputs", "label", "name", "named", "outputs", "phase", "source", "text", "typed", "values")

    def __init__(self, label: str, name: str, text: str, phase: Phase, source: Source | None, typed: bool) -> None:
        self.label = label
        self.name = name
        self.text = text
        self.phase = phase
        self.source = source
        self.typed = typed  # it has one output, itself
        self.values: tuple[Value, ...] = ()
        self.named: tuple[tuple[str, Value], ...] = ()
        self.inputs: tuple[int, ...] = ()
        self.outputs: list[tuple[tuple[int, ...], int]] = []


class Assembly:
    """Graph under assembly. ``bindings`` are the values of symbols; ``unbound`` the symbols without one."""

    def __init__(self, bindings: Mapping[str, int]) -> None:
        self.bindings = bindings
        self.unbound: set[str] = set()
        self.tensors: list[MadeTensor] = []
        self.blocks: list[Block] = []
        self.kernels: list[Kernel] = []

    def fresh(self, name: str, kind: TensorType, role: Role, born: int | None, persistent: bool = False) -> int:
        """A tensor in a storage of its own. Raises Bad for a dimension that is no size."""
        shape, known = self._shape(kind)
        nbytes = _extent(kind, shape, self.bindings if known else None)
        self.blocks.append(Block(name, nbytes, kind.device or UNKNOWN_DEVICE, role, born, persistent))
        return self._add(MadeTensor(name, len(self.blocks) - 1, kind, shape, known))

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
            tensor = self._add(MadeTensor(name, source.block, kind, shape, known), strides)
        kernel.outputs.append((path, tensor))
        self.use(tensor, index)
        return tensor

    def use(self, tensor: int, index: int) -> None:
        """The kernel ``index`` uses ``tensor``."""
        block = self.blocks[self.tensors[tensor].block]
        block.last = max(block.last, index)

    def _add(self, tensor: MadeTensor, strides: tuple[int, ...] = ()) -> int:
        if tensor.type.strides is not None and tensor.known:
            tensor.strides = tuple(_known(stride, self.bindings) for stride in tensor.type.strides)
        elif len(strides) == len(tensor.shape):
            tensor.strides = strides
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _shape(self, kind: TensorType) -> tuple[tuple[int, ...], bool]:
        """Its shape, and whether all of it is known: 0 stands for a dimension with a symbol that has no value."""
        missing = {name for dim in kind.dims for name in symbols_of(dim)} - self.bindings.keys()
        self.unbound |= missing
        shape = tuple(0 if symbols_of(dim) & missing else _known(dim, self.bindings) for dim in kind.dims)
        return shape, not missing


def _known(dim: int | str, bindings: Mapping[str, int]) -> int:
    try:
        return TensorType("uint8", (dim,)).shape(bindings)[0]
    except KeyError as error:
        raise Bad(f"{dim}: {error.args[0]} has no value") from None


def _extent(kind: TensorType, shape: tuple[int, ...], bindings: Mapping[str, int] | None) -> int:
    """Bytes from the first to the last element."""
    if bindings is None or 0 in shape:
        return 0
    strides = row_major(shape) if kind.strides is None else [_known(stride, bindings) for stride in kind.strides]
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return (reach + 1) * DTYPE_BYTES[kind.dtype]


def graph_tensor(tensor: MadeTensor) -> Tensor:
    """As a Graph has it."""
    return Tensor(tensor.block, tensor.dtype, tensor.shape, tensor.strides)


def graph_op(kernel: Kernel, call: int, sources: dict[Source, int]) -> Op:
    """As a Graph has it."""
    source = OUTSIDE if kernel.source is None else sources.setdefault(kernel.source, len(sources))
    outputs = tuple(tensor for _, tensor in sorted(kernel.outputs))
    return Op(call, kernel.inputs, outputs, kernel.phase, source=source, label=kernel.label)
