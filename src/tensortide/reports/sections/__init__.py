"""Sections, one file per capability. Those with ``of_step(step) -> Section | None`` and ``ORDER`` form the report."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tensortide.reports.blocks import Section

if TYPE_CHECKING:
    from tensortide.cost import Count, Resolver
    from tensortide.graph.model import Graph
    from tensortide.timing import Durations

__all__ = ["Step", "sections_of"]


@dataclass(frozen=True)
class Step:
    """A step about which sections are made: each takes what it needs, and what several need is computed once."""

    graph: Graph
    durations: Durations | None = None
    resolver: Resolver | None = None
    top: int = 15
    depth: int = 3

    @cached_property
    def counted(self) -> Count:
        """FLOPs and bytes of each op."""
        from tensortide.cost import count

        return count(self.graph, resolver=self.resolver)


def sections_of(step: Step) -> tuple[Section, ...]:
    """Make the section of every capability that has something to show about ``step``, in their order."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    reporting = sorted((module for module in modules if hasattr(module, "of_step")), key=lambda one: int(one.ORDER))
    return tuple(made for module in reporting if (made := module.of_step(step)) is not None)
