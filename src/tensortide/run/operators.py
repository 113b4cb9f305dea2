"""Facts about an op, read once from its schema: what it writes, and what recomputing it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tensortide.errors import RunError
from tensortide.graph.communication import OPS, SYMMETRIC
from tensortide.graph.effects import ALLOCATIONS, CONSTANTS, NORMALISATIONS, STATISTICS, fills
from tensortide.recorder.schema import PASSED_ON, schema_of
from tensortide.recorder.torch_compat import has_kernel
from tensortide.run.collectives import communicates
from tensortide.run.device import default_generators

_NO_MEMORY = "aten::_efficientzerotensor"
_UNREPEATABLE = frozenset({"profiler", "inductor"})
RESIZING = frozenset({"aten::resize_", "aten::resize_as_", "aten::_resize_output_", "aten::set_"})
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
    ``blank``: its results, or what it writes, have no contents, or one number for each element: ``constant``, or its
    argument at the place ``number``. ``fills``: it writes a whole tensor, whatever was in it. ``communicates``: other
    processes take part. ``by_parts``: the ops that it is made of are followed instead. ``composite``: it is made of
    other ops, and reaches a mode whole in inference mode. ``foreign``: it is of another library.
    ``believed``: its schema says truly what it writes; else it may write every argument, at any time.
    """

    __slots__ = (
        *("allocates", "believed", "blank", "by_parts", "communicates", "composite", "constant", "factory", "fills"),
        *("foreach", "foreign", "func", "kernel", "lean", "lone", "number", "passed", "random"),
        *("repeatable", "resizing", "statistics", "sums", "target", "training", "view", "written"),
    )

    def __init__(self, func: Any) -> None:
        schema, arguments = func._schema, func._schema.arguments
        self.func = func
        self.kernel = func._op
        self.passed = func in PASSED_ON
        self.believed = believed(func)
        places = {argument.name: place for place, argument in enumerate(arguments)}
        takes = ["Tensor" in str(argument.type) for argument in arguments]
        self._find_writes(schema, places, takes)
        self._find_contents(schema, places)
        self.composite = schema_of(func).composite
        self.view = (self.believed and bool(func.is_view) and not decomposes(func)) or schema.name == "aten::set_"
        self.foreign = schema.name.partition("::")[0] not in _KNOWN and not self.communicates
        self.random = self.foreign or torch.Tag.nondeterministic_seeded in func.tags
        unrepeatable = self.communicates or schema.name.partition("::")[0] in _UNREPEATABLE
        self.repeatable = self.believed and not unrepeatable and schema.name != _NO_MEMORY
        self.sums = func in _SUMS
        self.resizing = schema.name in RESIZING or any(argument.is_out for argument in arguments)
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

    def _find_writes(self, schema: Any, places: dict[str, int], takes: list[bool]) -> None:
        """Find the arguments that it writes, and whether other processes take part."""
        self.written = [
            (place, a.name)
            for place, a in enumerate(schema.arguments)
            if (a.alias_info and a.alias_info.is_write) or (takes[place] and not self.believed)
        ]
        if schema.name in _WRITTEN:
            self.written = [(places[name], name) for name in _WRITTEN[schema.name]]
        collective = OPS.get(schema.name)
        self.communicates = communicates(schema)
        self.by_parts = collective is not None and collective.by_parts
        if collective is not None:
            self.written = [(places[name], name) for name in collective.writes]
        training = NORMALISATIONS.get(schema.name.replace("::", "."))
        self.statistics = () if training is None else tuple(places[name] for name in STATISTICS if name in places)
        self.training = places.get(training or "", -1)
        self.target = -1
        if len(self.written) == 1 and training is None:
            place, _ = self.written[0]
            argument = schema.arguments[place]
            if str(argument.type) == "Tensor" and not argument.kwarg_only and not argument.has_default_value():
                self.target = place

    def _find_contents(self, schema: Any, places: dict[str, int]) -> None:
        """Find what it fills a tensor with, whatever was in it."""
        namespace, _, name = schema.name.partition("::")
        outs = sum(argument.is_out for argument in schema.arguments)
        self.fills = namespace == "aten" and fills(name, outs)
        self.blank = namespace == "aten" and not outs and (name in ALLOCATIONS or name in CONSTANTS)
        self.constant = CONSTANTS.get(name) if self.blank else None
        self.number = next((places[a] for a in ("fill_value", "value") if a in places), -1)


def decomposes(func: Any) -> bool:
    """True if ``func`` has a decomposition into other ops. In inference mode it reaches a mode whole: ``to`` and
    ``reshape`` declare a view and may copy."""
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
    """Reason why the op overload ``func`` must not run under a budget, on one line; empty if it may."""
    schema = func._schema
    namespace = schema.name.partition("::")[0]
    if (schema.name in OPS and namespace != SYMMETRIC) or not communicates(schema):
        return ""
    return (
        f"{func} communicates: a memory budget cannot follow what it reads and writes, and results could be wrong; "
        f"{_INSTEAD}"
    )


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
