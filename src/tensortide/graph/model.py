"""Graph of one training step and its parts, as frozen data.

A *storage* is a block of bytes. A *tensor* is a view of a storage (dtype, shape, strides, offset).
An *op* executes a *call* (op name and arguments, with holes where tensors go) on input tensors and
yields output tensors. Calls, tensors, modules and sources are interned: ops refer to them by index,
so a 100,000-op step stays small.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from tensortide.dtypes import ITEM_BYTES, storage_bytes
from tensortide.graph.precision import InTf32
from tensortide.graph.roles import Role as Role
from tensortide.shown import Show, Shown

if TYPE_CHECKING:
    from tensortide.graph.composites import Composites
    from tensortide.graph.index import Index

OUTSIDE = -1
"""Module or source index of an op that ran outside any module, or with no user frame on the stack."""
OUTSIDE_PATH, ROOT_PATH = "(outside)", "(root)"
"""Paths for display of what is in no module, and of the root module."""


class Phase(enum.StrEnum):
    """Part of the step in which an op runs. Recomputation is a flag on the op, not a phase."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    OTHER = "other"


UNKNOWN_DEVICE = "unknown"
"""The device of storages of which no record says where they are."""


class Storage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A block of bytes and its true eager life.

    ``birth`` is the op that allocates it (None: it existed before the step). ``death`` is exclusive:
    the storage is released before op ``death`` starts (None: it outlives the step). ``stream`` is the number of the
    stream of its device on which it was allocated: 0 is that of the start of the step, others are as they occur.
    """

    nbytes: int
    device: str
    role: Role
    birth: int | None
    death: int | None
    name: str = ""
    stream: int = 0


class Tensor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A view of a storage. ``strides`` and ``offset`` count elements; ``dtype`` is e.g. ``float32``."""

    storage: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def numel(self) -> int:
        """Number of elements of the shape (an expanded dimension counts in full)."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes per element: a byte at least, even where elements are packed."""
        return ITEM_BYTES[self.dtype]

    @property
    def nbytes(self) -> int:
        """Bytes of the elements laid out densely (an expanded dimension counts in full), scales included."""
        return storage_bytes(self.dtype, self.shape)

    @property
    def region_bytes(self) -> int:
        """Bytes an op must touch to read it once: dimensions of stride 0 count once."""
        sizes = [n if stride or n == 0 else 1 for n, stride in zip(self.shape, self.strides, strict=True)]
        return storage_bytes(self.dtype, sizes)


class Slot(enum.Enum):
    """The hole in a call's arguments or result where a tensor goes."""

    TENSOR = "tensor"


TENSOR = Slot.TENSOR


class Const(msgspec.Struct, frozen=True):
    """A framework constant among the arguments: kind ``dtype``, ``device``, ``layout``, ``memory_format``,
    ``generator`` or ``opaque`` (an object that cannot be written to a file: its repr is kept)."""

    kind: str
    value: str


Value: TypeAlias = bool | int | float | complex | str | Slot | Const | tuple["Value", ...] | None


class Call(msgspec.Struct, frozen=True):
    """An op name and its arguments with holes for tensors, shared by every op that makes the same call.

    ``op`` is ``namespace.name.overload`` (``aten.mm.default``). The first ``positional`` of ``arguments``
    are passed by position. ``mutated`` lists the holes (counted over all arguments in order) that the op
    writes in place. ``returns`` is the result with holes for its tensors. ``tags`` are properties the vocabulary
    declares (``pointwise``, ``view``, ...); ``guessed``: shapes of its results are; ``layer``: its weights are unknown.
    """

    op: str
    arguments: tuple[tuple[str, Value], ...] = ()
    positional: int = 0
    mutated: tuple[int, ...] = ()
    returns: Value = TENSOR
    tags: tuple[str, ...] = ()


class Op(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One executed op: indexes into the Graph's tables. ``inputs`` fill the holes of the call in order.

    ``loop`` is the innermost loop whose body it is in: it runs once per iteration. ``label`` is the name that the
    op itself has, in graphs whose ops have names."""

    call: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    phase: Phase
    module: int = OUTSIDE
    source: int = OUTSIDE
    recompute: bool = False
    branch: int = OUTSIDE
    loop: int = OUTSIDE
    label: str = ""


class Module(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A module of the model: dotted path (the root of a single-model workload is ``""``) and class name."""

    path: str
    type: str


class Source(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A line of the user's code: the first frame outside the framework."""

    file: str
    line: Annotated[int, Show(unit="number", data=True)]
    function: str
    code: Annotated[str, Show(unit="code", data=True)] = ""


class Branch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One arm of a conditional whose predicate is unknown: arms of one ``conditional`` exclude each other."""

    conditional: int
    arm: int
    parent: int = OUTSIDE


class Loop(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A loop whose body the Graph has once: its name, the loop around it, and how often its body runs there.

    ``gradient_of`` is the forward loop whose iterations a gradient loop retraces. ``carried`` are pairs of tensors:
    one that the body reads as an iteration starts, and the one that takes its place in the next. ``assumed``: the
    number of trips depends on data and nobody gave it, so ``trips`` is a guess.
    """

    name: str
    parent: int
    trips: int
    gradient_of: int = OUTSIDE
    carried: tuple[tuple[int, int], ...] = ()
    assumed: bool = False


class Named(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A tensor that has a name in the model or optimizer. Tied weights are two names of one tensor."""

    name: str
    role: Role
    tensor: int
    trainable: bool = False


class Meta(msgspec.Struct, frozen=True):
    """Origin of a Graph. ``machine`` is the GPU, by its name in the catalogue, that the capture pretended to have;
    ``compiled``: the step calls what ``torch.compile`` has compiled, and these are the ops that it runs without;
    ``graphs``: these are those of so many graphs that ``torch.compile`` makes of it, and what is eager between them.
    Ops or sizes depend on the ``assumptions`` that are ``decisive``, and perhaps on those that are ``untested``.
    ``groups``: the ranks of process groups, by name, of a step of one of several processes; the first is of all.
    ``guessed_trips``: by the name of a loop that was written out, how often, where nobody knows how often it runs.
    ``allocator``: PyTorch's on a GPU, as the program set it (``memory.ALLOCATORS``). ``tf32``: ops of fp32 that compute
    in it, where the program set other than the default. ``attention``: the kernel that times assume, if asked for."""

    workload: str = ""
    hyperparameters: dict[str, str | int | float | bool | None] = {}
    framework: Annotated[str, Show("Framework")] = ""
    captured_on: Annotated[str, Show("Captured on")] = "fake"
    step: Annotated[str, Show("first or steady")] = "steady"
    python: Annotated[str, Show("Python")] = ""
    assumptions: tuple[str, ...] = ()
    machine: str = ""
    compiled: bool = False
    graphs: int = 0
    decisive: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    groups: dict[str, tuple[int, ...]] = {}
    guessed_trips: dict[str, int] = {}
    allocator: str = "cuda"
    tf32: tuple[InTf32, ...] | msgspec.UnsetType = msgspec.UNSET
    attention: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_program(self) -> bool:
        """True for the step of a PyTorch program that was captured as it ran."""
        return self.framework.startswith("torch ") and self.captured_on in ("fake", "real")


class Graph(Shown, msgspec.Struct, frozen=True, dict=True):
    """One step, in execution order. Immutable; see the parts above for what the indexes mean. ``composites`` is None if
    the calls of composite ops were not recorded."""

    SECTION = "cost_table"
    ops: tuple[Op, ...]
    calls: tuple[Call, ...]
    tensors: tuple[Tensor, ...]
    storages: tuple[Storage, ...]
    modules: tuple[Module, ...] = ()
    sources: tuple[Source, ...] = ()
    branches: tuple[Branch, ...] = ()
    named: tuple[Named, ...] = ()
    meta: Meta = Meta()
    loops: tuple[Loop, ...] = ()
    composites: Composites | None = None

    def __len__(self) -> int:
        return len(self.ops)

    def __str__(self) -> str:
        return repr(self)  # of a table that has to be counted, a line in a log is none

    def __repr__(self) -> str:
        return f"<Graph {self.meta.workload!r:.80}: {len(self.ops):,} ops, {len(self.storages):,} storages>"

    def __iter__(self) -> Iterator[OpView]:
        return (OpView(self, i) for i in range(len(self.ops)))

    def __getitem__(self, index: int) -> OpView:
        """The op at ``index``, with its parts resolved. Raises IndexError."""
        self.ops[index]
        return OpView(self, index % len(self.ops))

    def trips(self, index: int) -> int:
        """Count the runs of the op at ``index`` in one step: the product of the trip counts of the loops around it."""
        loop = self.ops[index].loop
        return 1 if loop == OUTSIDE else self.loop_trips[loop]

    @functools.cached_property
    def index(self) -> Index:
        """Facts that follow from the parts: who owns, uses, allocates and releases what; devices; digest."""
        from tensortide.graph.index import Index

        return Index(self)

    @functools.cached_property
    def loop_trips(self) -> tuple[int, ...]:
        """For every loop how often its body runs in one step, the loops around it included."""
        trips: list[int] = []
        for loop in self.loops:
            trips.append(loop.trips if loop.parent == OUTSIDE else trips[loop.parent] * loop.trips)
        return tuple(trips)

    def module_path(self, index: int) -> str:
        """Path for display, also of the root module, and of what is in none."""
        if index == OUTSIDE:
            return OUTSIDE_PATH
        return self.modules[index].path or ROOT_PATH


class OpView:
    """One op with its parts resolved: what a cost rule or a report looks at. Computed on access."""

    __slots__ = ("graph", "index")

    def __init__(self, graph: Graph, index: int) -> None:
        self.graph = graph
        self.index = index

    def __repr__(self) -> str:
        ins = ", ".join(describe(t) for t in self.inputs)
        outs = ", ".join(describe(t) for t in self.outputs)
        return f"<op {self.index} {self.name}({ins}) -> {outs}>"

    @property
    def op(self) -> Op:
        return self.graph.ops[self.index]

    @property
    def call(self) -> Call:
        return self.graph.calls[self.op.call]

    @property
    def name(self) -> str:
        """``namespace.name.overload``."""
        return self.call.op

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        tensors = self.graph.tensors
        return tuple([tensors[i] for i in self.op.inputs])

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        tensors = self.graph.tensors
        return tuple([tensors[i] for i in self.op.outputs])

    @property
    def arguments(self) -> dict[str, object]:
        """Arguments by name with tensors in place of the holes. Defaulted trailing arguments are absent."""
        tensors = iter(self.inputs)
        return {name: fill(value, tensors) for name, value in self.call.arguments}

    @property
    def result(self) -> object:
        """The result structure with tensors in place of the holes (None where an output is absent)."""
        return fill(self.call.returns, iter(self.outputs))

    @property
    def phase(self) -> Phase:
        return self.op.phase

    @property
    def trips(self) -> int:
        """Number of runs in one step."""
        return self.graph.trips(self.index)

    @property
    def module(self) -> str:
        """Module path for display."""
        return self.graph.module_path(self.op.module)

    @property
    def source(self) -> Source | None:
        return None if self.op.source == OUTSIDE else self.graph.sources[self.op.source]

    @property
    def written_storages(self) -> frozenset[int]:
        """Storages the op mutates in place."""
        return frozenset(self.graph.tensors[self.op.inputs[i]].storage for i in self.call.mutated)

    @property
    def is_view(self) -> bool:
        """True if it only renames memory: every output lies in an input's storage and nothing is written."""
        if self.call.mutated or not self.op.outputs:
            return False
        read = {t.storage for t in self.inputs}
        return all(t.storage in read for t in self.outputs)


def fill(value: Value, tensors: Iterator[Tensor]) -> object:
    """``value`` with each hole replaced by the next of ``tensors``."""
    if value is TENSOR:
        return next(tensors)
    if isinstance(value, tuple):
        return tuple(fill(item, tensors) for item in value)
    return value


def count_slots(value: Value) -> int:
    """Number of holes in ``value``."""
    if value is TENSOR:
        return 1
    return sum(map(count_slots, value)) if isinstance(value, tuple) else 0


@functools.cache
def _short_dtype(dtype: str) -> str:
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        if dtype.startswith(long):
            return short + dtype[len(long) :]
    return dtype


def describe(tensor: Tensor, sizes: Iterable[object] | None = None) -> str:
    """Short text of dtype and shape, as ``f32[8,1024,768]``; ``sizes`` are written in place of the shape's numbers."""
    return f"{_short_dtype(tensor.dtype)}[{','.join(map(str, tensor.shape if sizes is None else sizes))}]"
