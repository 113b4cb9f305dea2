"""A step under a check: the value of each quantity, or why it has none."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tensortide.errors import GraphError, TensortideError
from tensortide.graph.model import OpView
from tensortide.graph.module_paths import is_inside
from tensortide.measures.checks.assertions import Absence, Quantity
from tensortide.measures.metric import Missing, Number
from tensortide.measures.profiler import Profiler
from tensortide.measures.registry import Registry
from tensortide.measures.subject import Captured, StepSubject
from tensortide.timelines.module_figures import BY_MODULE, ModuleFigures

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.timing import Durations


class Reading(NamedTuple):
    """The value of a quantity; None for the ``reason``.

    ``unknown`` ops without a rule make it a lower bound. ``low`` and ``high`` are the ends of an interval around it.
    """

    value: Number | None
    reason: str = ""
    unknown: int = 0
    low: Number | None = None
    high: Number | None = None
    remark: str = ""


@dataclass(frozen=True)
class Measured:
    """A step: its Graph, the times of its ops where they are known, and the machine that times are predicted for."""

    graph: Graph
    registry: Registry
    times: Durations | None = None
    machine: str | None = None

    @cached_property
    def _profiler(self) -> Profiler:
        return Profiler(StepSubject(self.graph, times=self.times), registry=self.registry)

    @property
    def captured(self) -> Captured:
        """The step with its costs and its memory."""
        return self._profiler.subject.captured()

    @property
    def modules(self) -> dict[str, ModuleFigures]:
        """The own figures of each module."""
        return self.captured.modules

    @cached_property
    def paths(self) -> set[str]:
        """The paths of all modules, with and without ops."""
        graph = self.captured.graph
        return {graph.module_path(index) for index in range(len(graph.modules))} | set(self.modules)

    def read(self, quantity: Quantity) -> Reading:
        """Compute a quantity."""
        name = quantity.metric.name
        if quantity.device:
            return self._on_device(quantity.device)
        machine = quantity.machine or self.machine
        takes_machine = machine is not None and "machine" in self.registry[name].function.options
        options: dict[str, Any] = {"machine": machine} if takes_machine else {}
        try:
            value = self._profiler.compute(name, **options)
        except TensortideError as error:
            return Reading(None, str(error).partition("\n")[0])
        if not isinstance(value, int | float):
            return Reading(None, value.reason if isinstance(value, Missing) else f"{name} has no numeric value")
        if quantity.modules:
            return self._inside(quantity)
        found = Reading(
            value, unknown=self.captured.count.total.unknown_ops if self.registry[name].metric.lower_bound else 0
        )
        return self._with_interval(found, name, options)

    def _inside(self, quantity: Quantity) -> Reading:
        """Sum up a quantity over modules."""
        inside, name = self._matching(quantity.modules), quantity.metric.name
        if not inside:
            return Reading(None, self._unmatched(quantity.modules))
        figures = [one for path, one in self.modules.items() if path in inside]
        unknown = sum(one.unknown_ops for one in figures) if self.registry[name].metric.lower_bound else 0
        return Reading(sum(getattr(one, BY_MODULE[name]) for one in figures), unknown=unknown)

    def _with_interval(self, found: Reading, name: str, options: dict[str, Any]) -> Reading:
        ends = [f"{name}_{end}" for end in ("low", "high")]
        if not all(end in self.registry for end in ends):
            return found
        low, high = (self._profiler.compute(end, **options) for end in ends)
        if not isinstance(low, int | float) or not isinstance(high, int | float) or not low < high:
            return found
        return found._replace(low=low, high=high, remark=self._doubt(options.get("machine", "")))

    def _doubt(self, machine: str) -> str:
        """Say what a prediction for a machine takes for granted."""
        if not machine:
            return ""
        from tensortide.targets.machines import in_catalogue, machines_of
        from tensortide.timing.catalogue import meant
        from tensortide.timing.collectives.nodes import counts_and_name
        from tensortide.timing.estimate import captured_elsewhere

        name, device = counts_and_name(machine)[1], machines_of(machine).device
        others = meant(name)[1] if in_catalogue(name) else ()
        notes = [f"{machine} is taken for {device.name}, not {' or '.join(others)}"] if others else []
        if elsewhere := captured_elsewhere(self.graph, device):
            notes.append(f"predicted for {device.name} {elsewhere}")
        return "; ".join(notes)

    def _on_device(self, device: str) -> Reading:
        from tensortide.timelines import timeline

        try:
            return Reading(timeline(self.captured.graph, device=device).peak_bytes)
        except GraphError as error:
            return Reading(None, str(error))

    def absent(self, rule: Absence) -> tuple[list[OpView], str]:
        """Return the ops that an assertion forbids, and why it cannot be told."""
        inside = self._matching(rule.modules) if rule.modules else self.paths
        if not inside:
            return [], self._unmatched(rule.modules)
        graph = self.captured.graph
        found = [index for index, op in enumerate(graph.ops) if graph.module_path(op.module) in inside]
        if rule.ops:
            called = {index for index, call in enumerate(graph.calls) if _is_called(call.op, rule.ops)}
            return [graph[index] for index in found if graph.ops[index].call in called], ""
        return [graph[index] for index in found if graph.ops[index].recompute], ""

    def _matching(self, pattern: str) -> set[str]:
        return {path for path in self.paths if is_inside(path, pattern)}

    def _unmatched(self, pattern: str) -> str:
        known = sorted(path for path in self.paths if not path.startswith("("))
        near = difflib.get_close_matches(pattern.removesuffix(".*"), known, n=1, cutoff=0.5)
        return f"no module matches {pattern}" + (f" (did you mean {near[0]}?)" if near else "")


def _is_called(name: str, pattern: str) -> bool:
    """Tell whether ``namespace.op.overload`` is what a pattern names: whole, or without overload or namespace."""
    namespace, _, rest = name.partition(".")
    op = rest.rpartition(".")[0] or rest
    return any(fnmatchcase(each, pattern) for each in (name, f"{namespace}.{op}", op))
