"""A captured step as one program: forward pass, backward pass and optimizer by a Plan, on the user's own tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tensortide.errors import GraphError, PlanError, RunError
from tensortide.graph.effects import draws_random, reads_value
from tensortide.graph.model import OUTSIDE, Call, Const, Graph, OpView, Phase, Role
from tensortide.memory.lifetimes import Residence, residences
from tensortide.plans.legal import validate
from tensortide.plans.model import Plan
from tensortide.plans.planned import Planned
from tensortide.recorder.build_graph import State
from tensortide.recorder.execute import arguments, function
from tensortide.recorder.isolate import Isolation
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.steady import is_result
from tensortide.replays import replay
from tensortide.run.generated.calls import Code, Hole
from tensortide.run.generated.lowering import lowered, states_kept
from tensortide.run.generated.random_state import state_bytes
from tensortide.run.generated.source import Segment, function_of

_READS = "aten._local_scalar_dense.default"
_LAZY = frozenset({"aten._conj.default", "aten._neg_view.default"})
_ALONE = "A generated program computes on tensors alone"


@dataclass(frozen=True, slots=True)
class _Found:
    """Objects of ``step``: tensors by name and role, the owner of each gradient by name, optimizers by path."""

    tensors: Mapping[tuple[str, Role], torch.Tensor]
    owners: Mapping[str, torch.Tensor]
    optimizers: Mapping[str, torch.optim.Optimizer]

    @classmethod
    def of(cls, step: Callable[[], Any]) -> _Found:
        reached = Isolation(lambda tensor: tensor)
        reached.visit(step)
        tensors: dict[tuple[str, Role], torch.Tensor] = {}
        owners: dict[str, torch.Tensor] = {}
        for name, tensor, role in State(Recorder(), reached).walk():
            tensors.setdefault((name, role), tensor)
            if role in (Role.PARAMETER, Role.INPUT):
                owners.setdefault(f"{name}.grad", tensor)
        return cls(tensors, owners, dict(reached.optimizers))

    def settings(self) -> dict[str, Any]:
        """The numbers and switches of the optimizers, by name."""
        groups = (
            (f"{path}.param_groups[{number}]", group)
            for path, optimizer in self.optimizers.items()
            for number, group in enumerate(optimizer.param_groups)
        )
        return {
            f"{path}[{key!r}]": value
            for path, group in groups
            for key, value in group.items()
            if key != "params" and not isinstance(value, torch.Tensor)
        }


class StepProgram:
    """Call it to run ``step`` by ``plan``, of which ``graph`` is the capture: one generated function, without autograd.

    It works on the tensors that the step reaches: parameters, optimizer state and buffers are updated, gradients are
    left in ``.grad`` unless the optimizer has used them and the next step drops them, and what the step returns is
    returned, a tensor or a tuple of them. Python of the step does not run: new data are copied into the tensors that it
    reads, and numbers such as learning rates are those of the capture.

    ``planned``: where the plan comes from. Raises RunError for a step that reads values of tensors, takes data from an
    iterator or leaves other tensors behind, or a plan that moves storages; and when it is called, if a setting of an
    optimizer has changed.
    """

    def __init__(self, step: Callable[[], Any], graph: Graph, plan: Plan, planned: Planned | None = None) -> None:
        check_straight(graph)
        validate(plan, graph)
        self.step, self.graph, self.plan, self.planned = step, graph, plan, planned
        self._found = _Found.of(step)
        self._settings = self._found.settings()
        given = self._given()
        self.inputs = tuple(given)
        self.results, self._gradients = self._ends()
        names = {tensor: f"given_{number}" for number, tensor in enumerate(given)}
        kept = [*self.results, *self._gradients.values()]
        try:
            instructions, ends = lowered(graph, plan, names, kept=kept)
        except PlanError as error:
            raise RunError(f"the step cannot be run as a program: {error}") from error
        places = {op: f"{s.file}:{s.line}" for op, view in enumerate(graph) if (s := view.source) is not None}
        segment = Segment("step", tuple(names.values()), instructions, tuple(ends))
        self.states = states_kept(instructions)
        self.function = function_of(segment, graph, [_code(view) for view in graph], places)

    @property
    def peak_bytes(self) -> int:
        """The planned peak, with the kept states of random generators."""
        peak = replay(self.graph, self.plan).peak_bytes if self.planned is None else self.planned.peak_bytes or 0
        return peak + self.states * state_bytes(self.graph.index.main_device)

    def __call__(self) -> Any:
        if self._settings != (now := self._found.settings()):
            name = next(n for n in {**self._settings, **now} if self._settings.get(n) != now.get(n))
            raise RunError(
                f"{name} is {now.get(name)} and was {self._settings.get(name)} when the step was compiled: it is part "
                "of the program. Compile it again, or keep it in a tensor"
            )
        values = [take() for take in self._takers]
        for owner in self._found.owners.values():
            owner.grad = None
        ends = self.function(values)
        for name, end in zip(self._gradients, ends[len(self.results) :], strict=True):
            self._found.owners[name].grad = end
        results = ends[: len(self.results)]
        return results[0] if len(results) == 1 else results or None

    def release(self, step: Callable[[], Any]) -> None:
        """Drop the gradients that ``step``, another one of the same kind, has left and the program does not leave."""
        for name, owner in _Found.of(step).owners.items():
            if name not in self._gradients:
                owner.grad = None

    # -- what goes in and comes out -------------------------------------------------------------

    def _given(self) -> list[int]:
        """Tensors that exist before the step and that it uses; ``_takers`` get the values of them."""
        graph, users = self.graph, self.graph.index.users
        wanted = {n for n, storage in enumerate(graph.storages) if storage.birth is None and users[n]}
        found: dict[int, Callable[[], torch.Tensor]] = {}
        for entry in graph.named:
            if graph.tensors[entry.tensor].storage in wanted and entry.tensor not in found:
                take = self._taker(entry.name, entry.role)
                if take is not None and _fits(take(), graph, entry.tensor):
                    found[entry.tensor] = take
        lacking = wanted - {graph.tensors[tensor].storage for tensor in found}
        if lacking:
            storage = graph.storages[min(lacking)]
            raise RunError(
                f"the step reads {storage.name or 'a tensor'} ({storage.nbytes:,} bytes, {storage.role.value}), which "
                "is not there outside of it as the capture has it: run one step before, make data beforehand, and copy "
                "new data into them"
            )
        self._takers = list(found.values())
        return list(found)

    def _taker(self, name: str, role: Role) -> Callable[[], torch.Tensor] | None:
        if role is Role.GRADIENT and name in self._found.owners:
            owner = self._found.owners[name]
            return None if owner.grad is None else lambda: _present(owner.grad, name)
        tensor = self._found.tensors.get((name, role))
        return None if tensor is None else lambda: tensor

    def _ends(self) -> tuple[list[int], dict[str, int]]:
        """Tensors that the step returns, and gradients that it leaves, by name."""
        graph = self.graph
        results = [entry.tensor for entry in graph.named if entry.role is Role.OUTPUT and is_result(entry.name)]
        residence, released = residences(graph), set[int]()
        gradients: dict[str, int] = {}
        for entry in graph.named:
            number = graph.tensors[entry.tensor].storage
            if entry.role is Role.GRADIENT and graph.storages[number].death is None:
                if residence[number] is Residence.LOCAL:
                    released.add(number)
                else:
                    gradients[entry.name] = entry.tensor
        known = released | {graph.tensors[tensor].storage for tensor in (*results, *gradients.values())}
        for number, storage in enumerate(graph.storages):
            if storage.birth is not None and storage.death is None and number not in known:
                line = graph[storage.birth].source
                raise RunError(
                    "the step leaves a tensor behind that is neither returned nor a gradient: the result of "
                    f"{graph[storage.birth].name}" + (f" at {line.file}:{line.line}" if line else "")
                )
        return results, gradients


def check_straight(graph: Graph) -> None:
    """Raise RunError if the ops of ``graph`` are not all that the step computes."""
    known = _constants(graph)
    for view in graph:
        line = view.source
        where = f" at {line.file}:{line.line}" if line is not None else ""
        if view.name in _LAZY:
            raise RunError(
                f"{view.name}{where} makes a view that is conjugated or negated when it is read, which a Graph does "
                "not tell apart from the tensor that it views: such a step runs only as it is, in one process"
            )
        if reads_value(view) and not known.issuperset(graph.index.reads[view.index]):
            raise RunError(f"{view.name}{where} reads the value of a tensor. {_remedy(view)}.")
        if view.call.mutated and torch.Tag.inplace_view in function(view.call).tags:
            raise RunError(f"{view.name} changes the shape of a tensor in place: use the op that returns a view")
    if graph.meta.assumptions:
        raise RunError(f"the captured step rests on an assumption: {graph.meta.assumptions[0]}. {_ALONE}.")
    if graph.loops or any(op.branch != OUTSIDE for op in graph.ops):
        raise RunError("a step with loops or branches that depend on values cannot be a straight-line program")


def _constants(graph: Graph) -> frozenset[int]:
    """Storages that have the same contents in every step: computed from nothing that is given to the step or drawn, as
    positions of tokens are."""
    index = graph.index
    found = {number for number, storage in enumerate(graph.storages) if storage.birth is not None}
    for op in range(len(graph.ops)):
        written = index.writes[op]
        if draws_random(graph[op].call) or not found.issuperset(index.reads[op]):
            found.difference_update(written)
    return frozenset(found)


def _remedy(view: OpView) -> str:
    """Return what helps against ``view``, which reads a value."""
    if view.op.phase is Phase.OPTIMIZER:
        return f"{_ALONE}: let the optimizer keep its numbers in tensors (capturable=True or fused=True)"
    if view.name == _READS:
        return f"{_ALONE}: read losses and other values after the step"
    return f"{_ALONE} of known sizes: select with torch.where, or with indices that are integers"


def _code(view: OpView) -> Code:
    _refuse(view.call)
    numbers = itertools.count()

    def hole(_: Any) -> Any:
        return Hole(next(numbers))

    try:
        args, kwargs = arguments(view, hole)
        return Code(function(view.call), tuple(args), kwargs)
    except GraphError as error:
        raise RunError(f"op {view.index} ({view.name}) cannot be called again: {error}") from error


def _refuse(call: Call) -> None:
    for name, value in call.arguments:
        if isinstance(value, Const) and (
            value.kind == "generator" or (value.kind == "tensor" and value.value.endswith("..."))
        ):
            raise RunError(f"{call.op} takes a {value.kind} as {name} that the capture does not hold")


def _fits(tensor: torch.Tensor, graph: Graph, number: int) -> bool:
    view = graph.tensors[number]
    return tuple(tensor.shape) == tuple(view.shape) and str(tensor.dtype)[6:] == view.dtype


def _present(gradient: torch.Tensor | None, name: str) -> torch.Tensor:
    if gradient is None:
        raise RunError(f"the step accumulates into {name}, and there is none")
    return gradient
