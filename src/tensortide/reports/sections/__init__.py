"""Sections, one file per capability. Those with ``of_step(step) -> Section | None`` and ``ORDER`` form the report."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace as replaced

from tensortide.reports.blocks import Document, Section
from tensortide.reports.names import device_text

if TYPE_CHECKING:
    from tensortide.cost import Count, Resolver
    from tensortide.graph.model import Graph
    from tensortide.memory import Reservation
    from tensortide.reports.sections.modules import ModuleRow
    from tensortide.studies.fit.whole_card import CardRow
    from tensortide.timelines import StorageTimeline
    from tensortide.timelines.machines import MachineStep
    from tensortide.timing import Durations
    from tensortide.timing.cards import Card
    from tensortide.timing.estimates import Estimate

__all__ = ["Step", "report_of", "sections_of"]


@dataclass(frozen=True)
class Step:
    """A step about which sections are made: each takes what it needs, and what several need is computed once."""

    graph: Graph
    durations: Durations | None = None
    resolver: Resolver | None = None
    strict: bool = False
    top: int = 15
    depth: int = 3
    predicted: Estimate | None = None
    """The time of the step with its host, where it is predicted."""
    costs: Count | None = None
    """FLOPs and bytes of each op, where they are counted already."""
    card: Card | None = None
    """The card that was asked for, where only its size is known."""
    moving: str = ""
    """The command that plans the step with moves, as it was asked for."""

    @cached_property
    def counted(self) -> Count:
        """FLOPs and bytes of each op."""
        if self.costs is not None:
            return self.costs
        from tensortide.cost import count

        return count(self.graph, strict=self.strict, resolver=self.resolver)

    @cached_property
    def eager(self) -> StorageTimeline:
        """Memory as the framework released it in this step, over time where durations are known."""
        from tensortide.timelines import timeline

        return timeline(self.graph, durations_ns=None if self.durations is None else self.durations.ns)

    @cached_property
    def pool(self) -> Reservation:
        """Counters of PyTorch's allocator for the GPU."""
        from tensortide.memory import reserve

        return reserve(self.graph)

    @cached_property
    def whole_card(self) -> tuple[CardRow, ...]:
        """The memory of the card by what takes it; empty for a step that was not captured for a GPU."""
        from tensortide.studies.fit.margins import margin
        from tensortide.studies.fit.whole_card import whole_card

        if not self.eager.device.startswith("cuda"):
            return ()
        return whole_card(self.graph, self.eager, self.pool.peak_reserved, margin(self.graph, self.counted.coverage))

    @cached_property
    def last_use(self) -> StorageTimeline:
        """Memory with every storage released right after its last use."""
        from tensortide.timelines import timeline

        return timeline(self.graph, lifetimes="last_use")

    @cached_property
    def phases(self) -> tuple[str, ...]:
        """The phase of each op; recomputation is one of its own."""
        from tensortide.cost.count import phase_of

        return tuple(map(phase_of, self.graph.ops))

    @cached_property
    def modules(self) -> tuple[ModuleRow, ...]:
        """The module tree as rows."""
        from tensortide.reports.sections.modules import module_rows

        return module_rows(self.counted, self.eager)

    def on(self, machines: Sequence[MachineStep]) -> list[Step]:
        """The step as it was captured for each of ``machines``, with its times there."""
        found: dict[int, Step] = {id(self.graph): self}
        for one in machines:
            if id(one.graph) not in found:
                found[id(one.graph)] = replace(self, graph=one.graph, durations=one.durations)
        return [found[id(one.graph)] for one in machines]

    @property
    def names_parameters(self) -> bool:
        """False for a file that does not tell which tensors are parameters: their number is unknown, not 0."""
        return self.graph.meta.captured_on != "file" or bool(self.graph.named)

    @property
    def kind(self) -> str:
        """``training``, ``inference`` or ``forward and backward``."""
        if "optimizer" in self.phases:
            return "training"
        return "forward and backward" if "backward" in self.phases else "inference"

    @property
    def device(self) -> str:
        """The device whose memory is shown, for a reader: its machine where the capture pretended one."""
        name = device_text(self.graph.index.main_device)
        if self.card is not None:
            return f"a {self.card.name} GPU"
        return f"{name} of {self.graph.meta.machine}" if self.graph.meta.machine else name

    def document(self, *sections: Section) -> Document:
        """Head ``sections`` with the step's name, settings and origin."""
        meta = self.graph.meta
        where = "read from a file" if meta.captured_on == "file" else f"captured on {meta.captured_on} tensors"
        where += ": eager ops of a torch.compile'd model" * meta.compiled
        if meta.graphs:
            where += f": ops of the {'graph' if meta.graphs == 1 else f'{meta.graphs} graphs'} of torch.compile"
        origin = f"; {meta.framework}, {where}" if meta.framework else ""
        time = () if self.durations is None else (f"time: {self.durations.source}",)
        return Document(
            title=meta.workload,
            subtitle=(f"one {self.kind} step on {self.device}{origin}", *time),
            settings=dict(meta.hyperparameters),
            sections=sections,
        )


def report_of(step: Step) -> Document:
    """Make the report of ``step``: all that is known of it, headed by the answer."""
    from tensortide.reports.sections.answer import of_sections

    made = sections_of(step)
    return replaced(step.document(*made), answer=of_sections(step, made))


def sections_of(step: Step) -> tuple[Section, ...]:
    """Make the section of every capability that has something to show about ``step``, in their order."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    reporting = sorted((module for module in modules if hasattr(module, "of_step")), key=lambda one: int(one.ORDER))
    return tuple(made for module in reporting if (made := module.of_step(step)) is not None)
