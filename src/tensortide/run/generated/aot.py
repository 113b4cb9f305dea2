"""A backend of ``torch.compile`` that plans each joint graph under a memory budget and runs the plan as a program."""

from __future__ import annotations

import inspect
import operator
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule

from tensortide.errors import BudgetInfeasible, RunError, RunWarning, TensortideError
from tensortide.graph.model import Graph
from tensortide.plans.planned import Planned
from tensortide.recorder.torch_dtypes import torch_dtype
from tensortide.run.generated.halves import Halves, halves_of
from tensortide.run.generated.joint import Joint, joint_of
from tensortide.run.generated.random_state import most_state_bytes, state_bytes
from tensortide.run.torch_compat import aot_autograd, aot_config, fake_mode_of
from tensortide.shown import Show, Shown
from tensortide.timelines import timeline
from tensortide.units import format_bytes

Planner: TypeAlias = Callable[[Graph, int], Planned]
"""Plans a graph within bytes. Raises BudgetInfeasible if there is no plan."""
_OUTSIDE = 4
"""A loss is taken to hold at most so many tensors of the size of what it is given: cross entropy holds two, and four of
the same bytes where it computes with half-precision numbers in single precision."""


@dataclass(eq=False, repr=False)
class CompiledGraph(Shown):
    """One graph of ``torch.compile``: its ops, its plan, and the two programs.

    ``peak_bytes`` is that of the plan and of the kept states of random generators (on a CPU, 5 KB for each random op
    that is recomputed). ``given_bytes`` of it are those of the inputs: parameters, buffers, data. ``held_bytes`` are
    resident between the passes, inputs included.
    """

    SECTION = "run.of_compiled_graph"
    joint: Joint
    planned: Planned
    halves: Halves
    peak_bytes: Annotated[int, Show("Peak")]
    given_bytes: Annotated[int, Show("Inputs")]
    held_bytes: Annotated[int, Show("Between the passes")]
    _saved: weakref.ref[Any] | None = None
    _warned: bool = False

    @property
    def graph(self) -> Graph:
        """The ops in the order in which they first run."""
        return self.joint.graph

    @property
    def source(self) -> str:
        """The source of the programs."""
        both = (self.halves.forward, self.halves.backward)
        return "\n".join(inspect.getsource(function) for function in both if function is not None)

    @property
    def is_held(self) -> bool:
        """True while a backward pass may follow: what the last call has saved is there."""
        return self._saved is not None and self._saved() is not None

    def watched(self) -> Callable[[list[Any]], tuple[Any, ...]]:
        """The forward program, which leaves a trace of what it saves."""
        forward, first = self.halves.forward, len(self.joint.outputs)
        owner, storages = self.graph.index.owner, self.graph.storages
        ends = {owner[tensor] for tensor in self.joint.outputs if tensor is not None}  # these the caller may keep
        kept = ((n, owner[t]) for n, t in enumerate(self.halves.saved) if t is not None)
        own = (n for n, storage in kept if storages[storage].birth is not None and storage not in ends)
        place = next((first + number for number in own), None)
        if place is None:
            return forward

        def run(given: list[Any]) -> tuple[Any, ...]:
            if self.is_held and not self._warned:
                self._warned = True
                more = format_bytes(self.held_bytes - self.given_bytes)
                warnings.warn(
                    f"a graph runs again before its backward pass: each run holds {more} until then, and the budget is "
                    "for one. Divide it by the number of runs.",
                    RunWarning,
                    stacklevel=2,
                )
            result = forward(given)
            self._saved = weakref.ref(result[place].untyped_storage())
            return result

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


class Backend:
    """Call it with a graph and its inputs, as ``torch.compile`` does. See ``tensortide.aot_backend``.

    ``graphs`` has what was compiled, in order.
    """

    def __init__(self, budget_bytes: int, planner: Planner, shares: Sequence[float] = ()) -> None:
        if any(not 0 < share <= 1 for share in shares) or sum(shares) > 1 + 1e-9:
            raise RunError(f"shares of a budget are parts above 0 that add up to at most 1, not {tuple(shares)}")
        self.budget_bytes, self.planner, self.shares = budget_bytes, planner, tuple(shares)
        self.graphs: list[CompiledGraph] = []
        self.__name__ = "tensortide"

    def __call__(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if any(map(_is_symbolic, inputs)):
            return self._by_shape(module)
        try:
            return self._compiled(module, inputs)
        except TensortideError as error:  # raised here, Dynamo would wrap it
            return _raising(error)

    def _compiled(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        made: dict[str, CompiledGraph] = {}

        def partition(joint: GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **_: Any) -> Any:
            count = len(joint_inputs[0])
            found = joint_of(joint, fake_mode_of(joint), inputs=count, outputs=num_fwd_outputs)
            made["both"] = self._planned(found)
            return _modules(joint, made["both"])

        def forward(graph: GraphModule, _: Any) -> Any:
            del graph
            return made["both"].watched()

        def backward(graph: GraphModule, _: Any) -> Any:
            del graph
            return made["both"].halves.backward

        def inference(graph: GraphModule, _: Any) -> Any:
            places = graph.graph.find_nodes(op="placeholder")
            return self._planned(joint_of(graph, fake_mode_of(graph), inputs=len(places))).halves.forward

        backend = aot_autograd()(
            fw_compiler=forward,
            bw_compiler=backward,
            inference_compiler=inference,
            partition_fn=partition,
            keep_inference_input_mutations=True,
        )
        with aot_config().patch(donated_buffer=False):
            compiled: Callable[..., Any] = backend(module, inputs)
        return compiled

    def _planned(self, joint: Joint) -> CompiledGraph:
        limit = self._limit()
        planned, halves, peak = self._fitting(joint, limit, 0)
        if peak > limit:
            planned, halves, peak = self._fitting(joint, limit, most_state_bytes(joint.graph))
        given = timeline(joint.graph, device=planned.device, lifetimes="last_use", workspace=False).start_bytes
        held = given + _held_bytes(joint, halves)
        found = CompiledGraph(joint, planned, halves, peak, given, held)
        if not self.shares:
            _warn_of_outside(found, limit)
        self.graphs.append(found)
        return found

    def _fitting(self, joint: Joint, limit: int, reserved: int) -> tuple[Planned, Halves, int]:
        """The plan within ``limit`` less what is ``reserved``, its programs, and the peak with the states they keep."""
        planned = self.planner(joint.graph, max(0, limit - reserved))
        assert planned.plan is not None
        assert planned.peak_bytes is not None
        halves = halves_of(joint, planned.plan)
        return planned, halves, planned.peak_bytes + halves.states * state_bytes(planned.device)

    def _limit(self) -> int:
        """Bytes for the next graph, beside those that wait for their backward pass."""
        held = [graph for graph in self.graphs if graph.is_held]
        if not held and not self.shares:
            return self.budget_bytes
        if self.shares:
            if len(held) >= len(self.shares):
                raise RunError(
                    f"torch.compile makes graph {len(held) + 1} of the step (TORCH_LOGS=graph_breaks says why), and "
                    f"the budget has {len(self.shares)} shares: give one more"
                )
            return int(self.budget_bytes * self.shares[len(held)])
        left = self.budget_bytes - sum(graph.held_bytes for graph in held)
        warnings.warn(
            f"torch.compile makes graph {len(held) + 1} of the step (TORCH_LOGS=graph_breaks says why). It is planned "
            f"within {format_bytes(max(0, left))}, what the graphs before it leave of the budget of "
            f"{format_bytes(self.budget_bytes)} between their passes; their gradients and its own may be there at "
            "once, which no plan counts. shares=(0.5, 0.5) divides the budget, which then bounds all graphs together.",
            RunWarning,
            stacklevel=2,
        )
        return max(0, left)

    def _by_shape(self, module: GraphModule) -> Callable[..., Any]:
        """A function that compiles ``module`` for each set of sizes it is called with."""
        made: dict[tuple[Any, ...], Callable[..., Any]] = {}

        def run(*args: Any) -> Any:
            key = tuple([(arg.shape, arg.stride()) if isinstance(arg, torch.Tensor) else arg for arg in args])
            if (compiled := made.get(key)) is None:
                compiled = made[key] = self._compiled(module, args)
            return compiled(*args)

        return run


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return any(isinstance(size, torch.SymInt) for size in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat)


def _raising(error: TensortideError) -> Callable[..., Any]:
    def run(*_: Any) -> Any:
        raise error.with_traceback(None)

    return run


def infeasible(planned: Planned) -> BudgetInfeasible:
    """Return the error for a step without a plan."""
    needs = f"any plan needs {format_bytes(planned.least.nbytes)} or more"
    if planned.enough_bytes is not None:
        needs += f", and the least budget for which one was found is {format_bytes(planned.enough_bytes)}"
    error = BudgetInfeasible(
        f"no plan fits a budget of {format_bytes(planned.budget_bytes)}: {needs}. Without recomputation it takes "
        f"{format_bytes(planned.recorded_peak_bytes)}."
    )
    error.least_bytes = planned.enough_bytes
    return error


def _warn_of_outside(found: CompiledGraph, limit: int) -> None:
    """Warn if what is computed with the outputs of a graph may take more than its plan leaves between the passes."""
    graph, between = found.graph, found.joint.between
    if between is None:
        return
    tangents = [graph.tensors[tensor] for tensor in graph.ops[between].outputs]
    nbytes = sum(int(graph.storages[each.storage].nbytes) for each in tangents if each.numel > 1)
    left = limit - found.held_bytes - nbytes
    if left < _OUTSIDE * nbytes:
        warnings.warn(
            f"a graph returns {format_bytes(nbytes)} of which code outside computes the loss: what that holds is in no "
            f"plan, and the budget leaves {format_bytes(max(0, left))} for it between the passes. Compile a function "
            "that returns the loss, or leave room in the budget.",
            RunWarning,
            stacklevel=2,
        )


# -- what AOTAutograd looks at ----------------------------------------------------------------------


def _held_bytes(joint: Joint, halves: Halves) -> int:
    """Bytes that are made in the forward pass and stay until the backward pass, or for the caller."""
    graph = joint.graph
    tensors = [tensor for tensor in (*halves.saved, *joint.outputs) if tensor is not None]
    own = {graph.index.owner[tensor] for tensor in tensors}
    return sum(int(graph.storages[s].nbytes) for s in own if graph.storages[s].birth is not None)


def _modules(joint: GraphModule, compiled: CompiledGraph) -> tuple[GraphModule, GraphModule]:
    """Modules that say what the programs take and return; the programs are their only ops."""
    places = joint.graph.find_nodes(op="placeholder")
    count, halves, own = len(compiled.joint.inputs), compiled.halves, compiled.joint
    saved = [_value(own, tensor, fake_mode_of(joint)) for tensor in halves.saved]
    names = [f"saved_{number}" for number in range(len(saved))]
    results: Any = joint.graph.output_node().args[0]
    ends = results[: len(own.outputs)]
    gradients = results[len(own.outputs) :]
    values = [*map(_val, ends), *saved]
    forward = _module(halves.forward, [(p.name, p.meta) for p in places[:count]], values)
    given = [*((name, {"val": value}) for name, value in zip(names, saved, strict=True))]
    given += [(place.name, place.meta) for place in places[count:]]
    assert halves.backward is not None
    return forward, _module(halves.backward, given, [*map(_val, gradients)])


def _val(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, torch.fx.Node) else node


def _value(joint: Joint, tensor: int | None, fake_mode: Any) -> Any:
    """A fake tensor like a saved one."""
    with fake_mode:
        if tensor is None:
            return torch.empty(0, dtype=torch.uint8)
        view = joint.graph.tensors[tensor]
        device = joint.graph.storages[view.storage].device
        return torch.empty_strided(view.shape, view.strides, dtype=torch_dtype(view.dtype), device=device)


def _module(function: Any, given: Sequence[tuple[str, Any]], values: Sequence[Any]) -> GraphModule:
    graph = FxGraph()
    places = []
    for name, meta in given:
        places.append(graph.placeholder(name))
        places[-1].meta.update(meta)
    result = graph.call_function(function, (places,))
    ends: list[Any] = []
    for number, value in enumerate(values):
        ends.append(None if value is None else graph.call_function(operator.getitem, (result, number)))
        if value is not None:
            ends[-1].meta["val"] = value
    graph.output(tuple(ends))
    return GraphModule(torch.nn.Module(), graph)
