"""ExportedPrograms and GraphModules in memory: their nodes are read, and nothing of them is called.

A GraphModule whose nodes carry no shapes, or that are no ops of the dispatcher, is recorded as a model is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from tensortide.errors import WorkloadError
from tensortide.graph.model import Role
from tensortide.importers.exported.build import graph_of
from tensortide.importers.exported.fx_nodes import Reading, has_shapes, is_tensor
from tensortide.importers.exported.program import End, Given, Program, Result
from tensortide.importers.imported import Imported
from tensortide.recorder.torch_compat import FakeTensor, FakeTensorMode

if TYPE_CHECKING:
    from tensortide.importers.exported.importer import ExportOptions

_PRIMAL, _TANGENT = "primals", "tangents"
_ROLES = {
    InputKind.USER_INPUT: Role.INPUT,
    InputKind.PARAMETER: Role.PARAMETER,
    InputKind.BUFFER: Role.BUFFER,
    InputKind.CONSTANT_TENSOR: Role.BUFFER,
}
_ENDS = {
    OutputKind.USER_OUTPUT: End.OUTPUT,
    OutputKind.LOSS_OUTPUT: End.OUTPUT,
    OutputKind.GRADIENT_TO_PARAMETER: End.GRADIENT,
    OutputKind.GRADIENT_TO_USER_INPUT: End.GRADIENT,
}
_NO_SHAPES = (
    "the nodes of this GraphModule carry no shapes. Give example inputs: "
    "tensortide.open(module, inputs=(x,)); fake tensors will do"
)


def convert(target: ExportedProgram | GraphModule, options: ExportOptions) -> Imported:
    """The Graph of a program in memory.

    Raises WorkloadError for a GraphModule whose shapes are not known, and for options that do not go with it.
    """
    if isinstance(target, ExportedProgram):
        return _imported(target.graph_module, options, _Signed(target))
    if options.signature is not None:
        return _imported(target, options, _Described(target, options.signature))
    if options.inputs is None and has_shapes(target.graph):
        return _imported(target, options, _Unsigned(target))
    inputs = options.inputs if options.inputs is not None else _examples(target)
    if inputs is None:
        raise WorkloadError(_NO_SHAPES)
    if options.symbols or options.bind:
        raise WorkloadError("a GraphModule recorded with example inputs has no symbols: leave out symbols and bind")
    from tensortide.recorder import capture

    return Imported(capture(target, inputs, name=type(target).__name__))


def _imported(module: GraphModule, options: ExportOptions, kind: _Signed | _Unsigned) -> Imported:
    reading = Reading(module, kind.origin)
    reading.settle(options.symbols, options.bind, kind.inputs(), kind.ranges())
    program = Program(
        kind.origin,
        f"{kind.framework} {torch.__version__}",
        reading.block("", module),
        [*kind.given(), *reading.constants],
        kind.results(),
        reading.symbols.said(options.symbols),
        reading.symbols.guessed,
    )
    return Imported(graph_of(program), symbols=reading.symbols.shown)


def _examples(module: GraphModule) -> tuple[Any, ...] | None:
    """Fake inputs of the shapes that placeholders carry; None if one carries none."""
    found, mode = [], FakeTensorMode()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            value = node.meta.get("val", node.meta.get("example_value", node.meta.get("tensor_meta")))
            shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
            if shape is None or dtype is None:
                return None
            with mode:
                found.append(torch.empty([int(size) for size in shape], dtype=dtype))
    return tuple(found)


class _Signed:
    """An ExportedProgram: its signature says what inputs and results are."""

    framework = "torch.export"

    def __init__(self, program: ExportedProgram) -> None:
        self.program, self.origin = program, "ExportedProgram"

    def inputs(self) -> list[FxNode]:
        """The inputs that are the user's."""
        named = {
            spec.arg.name for spec in self.program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT
        }
        return [node for node in self.program.graph.nodes if node.op == "placeholder" and node.name in named]

    def ranges(self) -> dict[str, tuple[int | None, int | None]]:
        """The least and largest value of each symbol."""
        return {str(name): (_limit(r.lower), _limit(r.upper)) for name, r in self.program.range_constraints.items()}

    def given(self) -> list[Given]:
        """Inputs, parameters and buffers; those of the same memory are the same."""
        nodes = {node.name: node for node in self.program.graph.nodes if node.op == "placeholder"}
        stored = {**self.program.constants, **self.program.state_dict}
        first: dict[tuple[int, int], str] = {}
        found = []
        for spec in self.program.graph_signature.input_specs:
            name, role = spec.arg.name, _ROLES.get(spec.kind)
            if role is None or name not in nodes or not is_tensor(nodes[name].meta.get("val")):
                continue
            value, same = stored.get(spec.target) if spec.target else None, name
            if isinstance(value, torch.Tensor) and role is not Role.INPUT:
                same = first.setdefault(_memory(value), name)
            trains = role is Role.PARAMETER and bool(nodes[name].meta["val"].requires_grad)
            trains = bool(getattr(value, "requires_grad", trains)) if role is Role.PARAMETER else False
            found.append(Given(name, role, spec.target or "", trains, "" if same == name else same))
        return found

    def results(self) -> list[Result]:
        """Outputs, losses, gradients, and new contents of buffers and inputs."""
        by_title = {spec.target or spec.arg.name: spec.arg.name for spec in self.program.graph_signature.input_specs}
        values = {node.name: node.meta.get("val") for node in self.program.graph.nodes}
        return [
            Result(spec.arg.name, _ENDS.get(spec.kind, End.MUTATION), by_title.get(spec.target or "", ""))
            for spec in self.program.graph_signature.output_specs
            if is_tensor(values.get(getattr(spec.arg, "name", "")))
        ]


class _Unsigned:
    """A GraphModule: attributes are parameters and buffers; of a joint graph the results that need tangents, or stand
    behind those that do not, are gradients of the primals in order."""

    framework = "torch.fx"

    def __init__(self, module: GraphModule) -> None:
        self.module, self.origin = module, type(module).__name__
        self.places = [node for node in module.graph.nodes if node.op == "placeholder"]

    def inputs(self) -> list[FxNode]:
        """All inputs."""
        return self.places

    def ranges(self) -> dict[str, tuple[int | None, int | None]]:
        """No limits: a GraphModule has none."""
        return {}

    def given(self) -> list[Given]:
        """Inputs; those of a joint graph that get gradients are parameters."""
        gradients = {result.of for result in self.results() if result.end is End.GRADIENT}
        described = any(_title(node) for node in self.places)
        found = []
        for node in self.places:
            if is_tensor(node.meta.get("val")):
                trains = node.name in gradients
                role = Role.PARAMETER if trains and (_title(node) or not described) else Role.INPUT
                role = Role.BUFFER if _kind(node) == "BufferAOTInput" else role
                found.append(Given(node.name, role, _title(node), trains and role is Role.PARAMETER))
        return found

    def outputs(self) -> list[Any]:
        """What it returns, lists taken apart."""
        output = next(node for node in self.module.graph.nodes if node.op == "output")
        flat: list[Any] = []
        torch.fx.node.map_aggregate(output.args[0], flat.append)
        return flat

    def results(self) -> list[Result]:
        """Results; of a joint graph gradients are those that stand for primals."""
        flat = self.outputs()
        tangents = [node for node in self.places if node.name.startswith(_TANGENT)]
        primals = [node for node in self.places if node.name.startswith(_PRIMAL)]
        first = len(flat) - len(primals) if tangents and primals else len(flat)
        found = []
        for place, value in enumerate(flat):
            if isinstance(value, FxNode) and is_tensor(value.meta.get("val")):
                of = primals[place - first].name if 0 <= first <= place else ""
                found.append(Result(value.name, End.GRADIENT if of else End.OUTPUT, of))
        return found


class _Described(_Unsigned):
    """A GraphModule of ``aot_export_module``, whose signature names inputs and results."""

    framework = "AOTAutograd"

    def __init__(self, module: GraphModule, signature: Any) -> None:
        super().__init__(module)
        self.parameters: dict[str, str] = signature.inputs_to_parameters
        self.buffers: dict[str, str] = signature.inputs_to_buffers
        written = signature.buffers_to_mutate
        backward = signature.backward_signature
        of_parameters = {} if backward is None else backward.gradients_to_parameters
        of_inputs = {} if backward is None else backward.gradients_to_user_inputs
        names = {title: name for name, title in (*self.parameters.items(), *self.buffers.items())}
        self.gradients = {name: names.get(of, of) for name, of in {**of_parameters, **of_inputs}.items()}
        self.written = {name: names.get(of, of) for name, of in written.items()}

    def given(self) -> list[Given]:
        """Inputs, parameters and buffers by their names in the model."""
        trained = set(self.gradients.values())
        found = []
        for node in self.places:
            if is_tensor(node.meta.get("val")):
                titles, role = self.buffers, Role.BUFFER
                if node.name in self.parameters:
                    titles, role = self.parameters, Role.PARAMETER
                title = titles.get(node.name, "")
                trains = role is Role.PARAMETER and node.name in trained
                found.append(Given(node.name, role if title else Role.INPUT, title, trains))
        return found

    def results(self) -> list[Result]:
        """Outputs, gradients, and new contents of buffers."""
        found = []
        for value in self.outputs():
            if isinstance(value, FxNode) and is_tensor(value.meta.get("val")):
                of = self.gradients.get(value.name, self.written.get(value.name, ""))
                end = End.GRADIENT if value.name in self.gradients else End.MUTATION if of else End.OUTPUT
                found.append(Result(value.name, end, of))
        return found


def _kind(node: FxNode) -> str:
    """What AOTAutograd calls an input: ``ParamAOTInput``, ``BufferAOTInput``, ``PlainAOTInput`` for data."""
    return type(node.meta.get("desc")).__name__


def _title(node: FxNode) -> str:
    """The name that a parameter or buffer has in the model, as AOTAutograd notes it; empty for anything else."""
    named = _kind(node) in ("ParamAOTInput", "BufferAOTInput")
    return str(getattr(node.meta["desc"], "target", "")) if named else ""


def _memory(value: torch.Tensor) -> tuple[int, int]:
    """What tells the memory of a tensor from that of others."""
    if value.device.type == "meta" or isinstance(value, FakeTensor):
        return id(value), 0
    return value.untyped_storage().data_ptr() or id(value), int(value.storage_offset())


def _limit(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return number if abs(number) < 1 << 62 else None
