"""An exported program out of its JSON: nothing of it is called, and of tensors only sizes are made."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping

from tensortide.errors import TraceError
from tensortide.graph.model import Role
from tensortide.importers.exported import document as d
from tensortide.importers.exported.archive import Archive
from tensortide.importers.exported.arguments import DTYPES, Scope, tensors_in
from tensortide.importers.exported.program import Block, End, Given, Program, Result, Type
from tensortide.importers.exported.sizes import Symbols

_STRIDED = 7
_OLD_WEIGHTS = "weights tied to each other count apart: an older PyTorch has said in a pickle alone which are"


def read_program(archive: Archive, given: Mapping[str, int], bind: tuple[str, ...]) -> tuple[Program, Symbols]:
    """The program of an archive with values ``given`` to its symbols and the names ``bind`` to dimensions.

    Raises TraceError for one that is damaged, WorkloadError for a value or name that does not go with it.
    """
    document = d.read_document(archive.program, archive.path)
    reading = _Reading(document, archive)
    try:
        return reading.program(given, bind), reading.symbols
    except RecursionError:
        raise TraceError(f"{archive.path}: graphs in it are too deeply nested") from None


class _Reading:
    def __init__(self, document: d.Document, archive: Archive) -> None:
        self.document, self.archive, self.origin = document, archive, archive.path
        self.graph, self.signature = document.graph_module.graph, document.graph_module.signature
        ranges = {name: (_limit(r.min_val), _limit(r.max_val)) for name, r in document.range_constraints.items()}
        self.symbols = Symbols(self.origin, ranges)

    def program(self, given: Mapping[str, int], bind: tuple[str, ...]) -> Program:
        inputs = {name: self.graph.tensor_values[name].sizes for name in self._user_inputs()}
        for name, sizes in inputs.items():
            for place, size in enumerate(sizes):
                self._learn(size, f"{name}.{place}")
        for graph in _graphs(self.graph):
            for number in _numbers(graph):
                self._learn(number)
        dims = {name: [_text(size) for size in sizes] for name, sizes in inputs.items()}
        self.symbols.settle(given, bind, dims, self._bounds())
        body = self.block("", self.graph)
        made = Program(self.origin, f"torch.export {self.document.torch_version}", body, self._given(), self._results())
        if not self.archive.weights and any(each.role is Role.PARAMETER for each in made.given):
            made.notes.append(_OLD_WEIGHTS)
        made.notes.extend(self.symbols.said(given))
        made.guesses.extend(self.symbols.guessed)
        return made

    # -- symbols ---------------------------------------------------------------------------------------

    def _learn(self, number: d.Int, where: str = "") -> None:
        if number.as_expr is not None:
            self.symbols.learn(number.as_expr.expr_str, number.as_expr.value, where)

    def _user_inputs(self) -> Iterator[str]:
        for spec in self.signature.input_specs:
            tensor = spec.user_input.arg.as_tensor if spec.user_input else None
            if tensor is not None and tensor.name in self.graph.tensor_values:
                yield tensor.name

    def _bounds(self) -> Iterator[tuple[str, Callable[[], int]]]:
        """For each symbol in the shape of a result the elements of what its op reads: selections have no more."""
        values = self.graph.tensor_values
        for node in self.graph.nodes:
            read = next((values[name] for item in node.inputs for name in tensors_in(item.arg) if name in values), None)
            for name in (name for item in node.outputs for name in tensors_in(item)) if read is not None else ():
                for size in values[name].sizes if name in values else ():
                    if size.as_expr is not None:
                        yield str(self.symbols.expression(size.as_expr.expr_str)), functools.partial(self._numel, read)

    def _numel(self, meta: d.TensorMeta | None) -> int:
        return math.prod(self.number(size) for size in meta.sizes) if meta else 0

    # -- graphs ----------------------------------------------------------------------------------------

    def block(self, name: str, graph: d.Graph) -> Block:
        """One graph, and those in it."""
        types = {key: self._type(key, meta) for key, meta in graph.tensor_values.items()}
        scope = Scope(self.origin, graph, types, self.number, self.block)
        nodes = [made for node in graph.nodes if (made := scope.node(node)) is not None]
        inputs = tuple(item.as_tensor.name if item.as_tensor else None for item in graph.inputs)
        return Block(name, inputs, nodes, tuple(scope.value(item) for item in graph.outputs), types)

    def number(self, number: d.Int) -> int:
        """A size: a number, or the value of an expression. Raises TraceError where it is neither."""
        if number.as_expr is not None:
            return self.symbols.size(number.as_expr.expr_str, number.as_expr.value)
        if number.as_int is None:
            raise TraceError(f"{self.origin}: a size that is no number")
        return number.as_int

    def _type(self, name: str, meta: d.TensorMeta) -> Type:
        dtype = DTYPES.get(meta.dtype)
        if dtype is None:
            raise TraceError(f"{self.origin}: {name} has the dtype {meta.dtype}, which no program has")
        shape, strides = (tuple(map(self.number, sizes)) for sizes in (meta.sizes, meta.strides))
        if any(size < 0 for size in (*shape, *strides)) or math.prod(shape) >= 1 << 62:
            raise TraceError(f"{self.origin}: {name} has the shape {shape} and the strides {strides}")
        if meta.layout != _STRIDED or len(strides) != len(shape):
            strides = ()
        return Type(dtype, shape, strides, max(self.number(meta.storage_offset), 0), meta.device.type)

    # -- the signature ---------------------------------------------------------------------------------

    def _given(self) -> list[Given]:
        specs = self.signature.input_specs
        if len(specs) != len(self.graph.inputs):
            raise TraceError(f"{self.origin}: {len(self.graph.inputs)} inputs, and {len(specs)} entries for them")
        payloads = d.decode(self.archive.weights or b"{}", d.Payloads, self.origin).config
        payloads |= d.decode(self.archive.constants or b"{}", d.Payloads, self.origin).config
        first: dict[str, str] = {}
        found = []
        for one in filter(None, map(_given, specs)):
            if one.name in self.graph.tensor_values:
                stored = payloads.get(one.title)
                same = first.setdefault(stored.path_name, one.name) if stored and one.title else one.name
                trains = one.role is Role.PARAMETER and self.graph.tensor_values[one.name].requires_grad
                found.append(Given(one.name, one.role, one.title, trains, "" if same == one.name else same))
        return found

    def _results(self) -> list[Result]:
        names = {one.title or one.name: one.name for one in filter(None, map(_given, self.signature.input_specs))}
        found = (_result(spec, names) for spec in self.signature.output_specs)
        return [one for one in found if one is not None and one.name in self.graph.tensor_values]


def _given(spec: d.InputSpec) -> Given | None:
    """An input of the program; None if it is no tensor."""
    if spec.user_input is not None:
        tensor = spec.user_input.arg.as_tensor
        return None if tensor is None else Given(tensor.name, Role.INPUT)
    if spec.parameter is not None:
        return Given(spec.parameter.arg.name, Role.PARAMETER, spec.parameter.parameter_name)
    stored = spec.buffer or spec.tensor_constant
    if stored is None:
        return None
    return Given(stored.arg.name, Role.BUFFER, stored.buffer_name or stored.tensor_constant_name)


def _result(spec: d.OutputSpec, names: Mapping[str, str]) -> Result | None:
    """A result of the program; None if it is no tensor. ``names`` are those of inputs by what they are."""
    if spec.user_output is not None:
        tensor = spec.user_output.arg.as_tensor
        return None if tensor is None else Result(tensor.name)
    if spec.loss_output is not None:
        return Result(spec.loss_output.arg.name)
    if (gradient := spec.gradient_to_parameter or spec.gradient_to_user_input) is not None:
        return Result(
            gradient.arg.name, End.GRADIENT, names.get(gradient.parameter_name or gradient.user_input_name, "")
        )
    if (written := spec.buffer_mutation or spec.parameter_mutation or spec.user_input_mutation) is not None:
        title = written.buffer_name or written.parameter_name or written.user_input_name
        return Result(written.arg.name, End.MUTATION, names.get(title, ""))
    return None


def _graphs(graph: d.Graph) -> Iterator[d.Graph]:
    """A graph and those in it."""
    yield graph
    for node in graph.nodes:
        for item in node.inputs:
            if item.arg.as_graph is not None:
                yield from _graphs(item.arg.as_graph.graph)


def _numbers(graph: d.Graph) -> Iterator[d.Int]:
    """All sizes of a graph; those of its sizes by themselves come first: they say what a symbol is worth."""
    yield from graph.sym_int_values.values()
    for meta in graph.tensor_values.values():
        yield from meta.sizes
        yield from meta.strides
        yield meta.storage_offset


def _text(number: d.Int) -> str:
    return number.as_expr.expr_str if number.as_expr is not None else str(number.as_int)


def _limit(value: float | None) -> int | None:
    """A limit of a range; None for an infinite one."""
    return int(value) if value is not None and abs(value) < 1 << 62 else None
