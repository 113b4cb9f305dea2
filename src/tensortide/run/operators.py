"""Facts about an op: what recomputing it takes, read once from its schema, and the bytes that it will allocate."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from msgspec.structs import replace

from tensortide.errors import RunError
from tensortide.graph.effects import ALLOCATIONS, CONSTANTS, NORMALISATIONS, STATISTICS, fills
from tensortide.memory.workspace import workspace_of
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.schema import PASSED_ON, schema_of
from tensortide.recorder.torch_compat import has_kernel, pytree
from tensortide.run.block import Hole, Template
from tensortide.run.collectives import COMMUNICATIONS, communicates
from tensortide.run.device import default_generators
from tensortide.run.torch_compat import BelowAutograd, NoAutocast

_NO_MEMORY = "aten::_efficientzerotensor"
_UNREPEATABLE = frozenset({"profiler", "inductor"})
_RESIZING = frozenset({"aten::resize_", "aten::resize_as_", "aten::_resize_output_", "aten::set_"})
_WRITTEN: dict[str, tuple[str, ...]] = {
    "aten::record_stream": (),
    **dict.fromkeys(("aten::_cudnn_rnn", "aten::miopen_rnn"), ("dropout_state",)),
    **dict.fromkeys(("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward"), ("reserve",)),
}
"""Arguments that ops write, where their schemas do not tell: generators in memory, workspace used up by the backward
pass. The contents are bound to one run of the op."""
_SUMS = (torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor)
_SIMPLE = frozenset({"aten::zero_", "aten::fill_", "aten::copy_", "aten::masked_fill_"})
_OPTIMIZERS = ("aten::_foreach_", "aten::_fused_")
_LONG = 8
"""Bytes of an index."""


def _count(hole: Hole) -> int:
    return math.prod(hole.size)


def _positions(args: Sequence[Any]) -> int:
    """Most bytes of the positions of what is not zero in a tensor."""
    return _count(args[0]) * max(1, len(args[0].size)) * _LONG


def _entries(args: Sequence[Any]) -> int:
    """Most bytes of a part of a tensor."""
    hole: Hole = args[0]
    return _count(hole) * hole.dtype.itemsize


def _masked(args: Sequence[Any]) -> int | None:
    masks = any(isinstance(index, Hole) and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return _entries(args) if masks else None


def _unique(args: Sequence[Any]) -> int:
    return _entries(args) + 2 * _count(args[0]) * _LONG


_DYNAMIC: dict[str, Callable[[Sequence[Any]], int | None]] = {
    "aten::nonzero": _positions,
    "aten::argwhere": _positions,
    "aten::masked_select": _entries,
    "aten::index": _masked,
    "aten::_unique": _unique,
    "aten::_unique2": _unique,
    "aten::unique_consecutive": _unique,
    "aten::unique_dim": _unique,
    "aten::unique_dim_consecutive": _unique,
}
"""Most bytes that an op makes whose results are as large as the data has it; None for a call of which it is known."""


class Operator:
    """Facts of an op overload.

    ``kernel`` runs it. ``passed``: it only asks about a tensor. ``view``: its results only view its inputs, or it makes
    an input do so. ``written``: places and names of the arguments that it writes. ``statistics``: places of the running
    statistics that it updates when it trains (argument number ``training`` says whether; -1: always), which its results
    do not depend on. ``random``: it draws from a generator.
    ``repeatable``: it can be recomputed. ``foreach``: it does one thing to each tensor of its lists. ``sums``: it adds
    two tensors. ``resizing``: it may give a storage another size. ``target``: the place of the only argument that it
    writes, if that is one tensor given by position, or -1. ``allocates``: it may take memory. ``factory``: it takes no
    tensor; ``lone``: only its first argument is one. ``lean``: it takes no memory at all, not even while it runs.
    ``dynamic``: most bytes of its results, if the data decides. ``blank``: its results, or what it writes, have no
    contents, or one number for each element: ``constant``, or its argument at the place ``number``. ``fills``: it
    writes a whole tensor, whatever was in it. ``communicates``: other processes take part. ``composite``: its ops are
    followed instead. ``foreign``: it is of another library. ``believed``: its schema says truly what it writes; else it
    may write every argument, at any time.
    """

    __slots__ = (
        *("allocates", "believed", "blank", "communicates", "composite", "constant", "dynamic", "factory", "fills"),
        *("foreach", "foreign", "func", "kernel", "lean", "lone", "number", "passed", "random"),
        *("repeatable", "resizing", "statistics", "sums", "target", "training", "view", "whole", "written"),
    )

    def __init__(self, func: Any) -> None:
        schema, arguments = func._schema, func._schema.arguments
        self.func = func
        self.kernel = func._op
        self.passed = func in PASSED_ON
        places = {argument.name: place for place, argument in enumerate(arguments)}
        takes = ["Tensor" in str(argument.type) for argument in arguments]
        self.believed = believed(func)
        self.written = [
            (place, a.name)
            for place, a in enumerate(arguments)
            if (a.alias_info and a.alias_info.is_write) or (takes[place] and not self.believed)
        ]
        if schema.name in _WRITTEN:
            self.written = [(places[name], name) for name in _WRITTEN[schema.name]]
        communication = COMMUNICATIONS.get(schema.name)
        self.communicates = communicates(schema)
        self.composite = communication is not None and communication.composite
        if communication is not None:
            self.written = [(places[name], name) for name in communication.writes]
        training = NORMALISATIONS.get(schema.name.replace("::", "."))
        self.statistics = () if training is None else tuple(places[name] for name in STATISTICS if name in places)
        self.training = places.get(training or "", -1)
        self.target = -1
        if len(self.written) == 1 and training is None:
            place, _ = self.written[0]
            argument = arguments[place]
            if str(argument.type) == "Tensor" and not argument.kwarg_only and not argument.has_default_value():
                self.target = place
        self.whole = schema_of(func).composite
        self.view = (self.believed and bool(func.is_view) and not _composite(func)) or schema.name == "aten::set_"
        self.foreign = schema.name.partition("::")[0] not in _KNOWN and not self.communicates
        self.random = self.foreign or torch.Tag.nondeterministic_seeded in func.tags
        unrepeatable = self.communicates or schema.name.partition("::")[0] in _UNREPEATABLE
        self.repeatable = self.believed and not unrepeatable and schema.name != _NO_MEMORY
        self.sums = func in _SUMS
        self.resizing = schema.name in _RESIZING or any(argument.is_out for argument in arguments)
        self.allocates = self.resizing or any(
            "Tensor" in str(r.type) and not (r.alias_info and r.alias_info.is_write) for r in schema.returns
        )
        self.factory = not any(takes)
        self.lone = takes[:1] == [True] and sum(takes) == 1
        self.foreach = schema.name.startswith("aten::_foreach_") and not any(
            a.name == "scalars" and str(a.type) == "Tensor" for a in arguments
        )
        simple = torch.Tag.pointwise in func.tags or schema.name in _SIMPLE or schema.name.startswith(_OPTIMIZERS)
        self.lean = not self.allocates and simple
        self.dynamic = _DYNAMIC.get(schema.name)
        namespace, _, name = schema.name.partition("::")
        outs = sum(argument.is_out for argument in arguments)
        self.fills = namespace == "aten" and fills(name, outs)
        self.blank = namespace == "aten" and not outs and (name in ALLOCATIONS or name in CONSTANTS)
        self.constant = CONSTANTS.get(name) if self.blank else None
        self.number = next((places[a] for a in ("fill_value", "value") if a in places), -1)


def _composite(func: Any) -> bool:
    """True if ``func`` is made of other ops. In inference mode it reaches a mode whole: ``to`` and ``reshape`` declare
    a view and may copy."""
    return has_kernel(func.name(), "CompositeImplicitAutograd")


operators: dict[int, Operator] = {}
"""The Operator of every op overload that was seen, by its ``id``."""


# -- ops that must not run ---------------------------------------------------------------------------

_KNOWN = frozenset(
    {
        *("aten", "prim", "prims", "inductor_prims", "debugprims", "rngprims", "profiler"),
        *("quantized", "_quantized", "quantized_decomposed", "sparse"),
        *("mkl", "mkldnn", "mkldnn_prepacked", "onednn", "prepacked", "xnnpack"),
    }
)
"""Namespaces whose schemas say truly what an op writes, and whose ops are done when they return."""
_INSTEAD = "call it outside of `with tensortide.budget(...)`"


def refusal(func: Any) -> str:
    """Reason why the op overload ``func`` must not run under a budget, on one line; empty if it may.

    Schemas of other libraries may declare no writes.
    """
    schema = func._schema
    namespace = schema.name.partition("::")[0]
    if namespace in _KNOWN or schema.name in COMMUNICATIONS:
        return ""
    if communicates(schema):
        return (
            f"{func} communicates: a memory budget cannot follow what it reads and writes, and results could be wrong; "
            f"{_INSTEAD}"
        )
    return ""


def believed(func: Any) -> bool:
    """True if the schema of the op overload ``func`` says truly which arguments it writes: it is PyTorch's own; or
    somebody wrote it out and registered an implementation for tensors without memory, as ``torch.compile`` and
    ``torch.library.custom_op`` ask, where a false schema gives wrong results too.

    C++ infers schemas from signatures (``m.def("scale", &scale)``): they declare no writes, and their arguments have
    numbers for names. What returns nothing, or has a name that ends in an underscore, writes something.
    """
    schema = func._schema
    if schema.name.partition("::")[0] in _KNOWN or communicates(schema):
        return True
    takes = any("Tensor" in str(argument.type) for argument in schema.arguments)
    if not schema.is_mutable and takes and (not schema.returns or schema.name.endswith("_")):
        return False
    inferred = any(argument.name.removeprefix("_").isdigit() for argument in schema.arguments)
    return not inferred and has_kernel(func.name(), "Meta")


def operator_of(func: Any) -> Operator:
    """The Operator of ``func``. Raises RunError if it must not run."""
    found = operators.get(id(func))
    if found is None:
        if reason := refusal(func):
            raise RunError(reason)
        found = operators[id(func)] = Operator(func)  # which holds ``func``, so the number stays its own
    return found


def written_by(operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The arguments that a call writes, and those of them whose old contents its results do not depend on."""
    given = len(args)
    written = [args[place] if place < given else kwargs.get(name) for place, name in operator.written]
    if not operator.statistics or (operator.training >= 0 and not args[operator.training]):
        return written, []
    blind = [args[place] for place in operator.statistics if args[place] is not None]
    return [*written, *(value for value in blind if not any(value is other for other in written))], blind


def generators_of(args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> list[torch.Generator]:
    """The generators that a call of a random op may draw from."""
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Generator)]
    if given:
        return given
    devices = {tensor.device for tensor in tensors}
    if isinstance(kwargs.get("device"), torch.device):
        devices.add(kwargs["device"])
    return default_generators(devices)


# -- bytes that a call will allocate ----------------------------------------------------------------

_MOST = 1 << 16
"""Calls that are remembered at once."""


@dataclass(slots=True)
class Room:
    """Bytes that one kind of call allocates: as many as are known, 0 where nothing but the call itself can tell; and
    those of its kernel's workspace. ``open``: the next call is measured; ``varies``: so is every one."""

    nbytes: int
    workspace_bytes: int = 0
    open: bool = False
    varies: bool = False
    cost_ns: int = 0
    """The least time that events have told for such a call."""
    timings: int = 0
    """Calls that were timed by events."""

    def learn(self, nbytes: int, most_bytes: int | None) -> None:
        """The call has allocated ``nbytes``: more than expected where a kernel has memory of its own to return; and
        ``most_bytes`` at once, if that was measured."""
        if nbytes > self.nbytes:
            self.nbytes = nbytes
        if most_bytes is not None:
            self.workspace_bytes = max(most_bytes - nbytes, self.workspace_bytes if self.varies else 0)
            self.open = self.varies

    def timed(self, cost_ns: int) -> None:
        """Such a call took ``cost_ns`` on its device."""
        self.cost_ns = min(cost_ns, self.cost_ns or cost_ns)


NO_ROOM = Room(0)


class Sizes:
    """Remembers what calls allocated on ``device``; what was never called is run on tensors without memory first.
    ``workspace``: what kernels take while they run counts. It is measured in the first call of each kind; before that,
    there are rules (``memory.workspace``)."""

    def __init__(self, device: str, workspace: bool) -> None:
        self.device, self.workspace = device, workspace
        self._known: dict[Any, Room] = {}

    def room(
        self,
        operator: Operator,
        marks: list[Any],
        template: Template,
        named: dict[str, Template],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Room:
        """Room for a call of ``operator`` with ``marks``: as a ``template`` and ``named``, with these arguments."""
        if operator.factory:  # what arange makes depends on the values of its numbers
            marks = [*marks, repr(args), repr(kwargs)]
        key = (id(operator), *marks)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[key] = self._expected(operator, template, named)
        return known

    def _expected(self, operator: Operator, template: Template, named: dict[str, Template]) -> Room:
        most = operator.dynamic(template) if operator.dynamic is not None else None
        if most is not None:
            return Room(most, open=self.workspace, varies=True)
        tried = operator.allocates and (not operator.foreign or (operator.believed and not operator.factory))
        room = self._on_meta(operator.func, template, named) if tried else Room(0)
        room.open = self.workspace and not operator.factory and operator.func._schema.name not in _RESIZING
        return room

    def _on_meta(self, func: Callable[..., Any], args: Template, kwargs: dict[str, Template]) -> Room:
        """Room by a record of the call on tensors without memory."""
        recorder = Recorder()
        try:
            args, kwargs = pytree.tree_map_only(
                Hole, _bare, (args, kwargs), is_leaf=lambda item: isinstance(item, Hole)
            )
            if "device" in kwargs:
                kwargs = {**kwargs, "device": torch.device("meta")}
            with NoAutocast(), BelowAutograd():
                result = recorder.record(func, schema_of(func), args, kwargs)
        except Exception:  # noqa: BLE001  # of another library
            return Room(0)
        made = sum(s.nbytes for s in recorder.storages if s.birth is not None)
        resized = sum(s.nbytes for s in recorder.storages if s.death is not None)
        del result
        graph = recorder.graph(replace(storage, device=self.device) for storage in recorder.storages)
        copied = min(made, resized)  # from the old bytes to the new ones
        return Room(max(0, made - resized), copied + workspace_of(graph, 0, self.device) if self.workspace else 0)


@functools.cache
def sizes_on(device: torch.device, workspace: bool, threads: int) -> Sizes:
    """Sizes of what ops allocate on ``device`` with as many ``threads``, learnt under all budgets so far."""
    return Sizes(str(device), workspace)


def _bare(hole: Hole) -> torch.Tensor:
    return torch.empty_strided(hole.size, hole.stride, dtype=hole.dtype, device="meta")
