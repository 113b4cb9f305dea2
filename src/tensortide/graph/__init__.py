"""The Graph of one training step: its parts, validation and file format."""

from __future__ import annotations

from tensortide.graph.builder import GraphBuilder
from tensortide.graph.composites import Composite, Composites
from tensortide.graph.file import load, save
from tensortide.graph.handles import Handle, Out
from tensortide.graph.index import Index
from tensortide.graph.model import (
    OUTSIDE,
    TENSOR,
    Branch,
    Call,
    Const,
    Graph,
    Loop,
    Meta,
    Module,
    Named,
    Op,
    OpView,
    Phase,
    Role,
    Source,
    Storage,
    Tensor,
)
from tensortide.graph.trips import TRIPS, guessed_trips, with_trips
from tensortide.graph.unroll import unrolled, written_out
from tensortide.graph.validate import validate

__all__ = [
    "OUTSIDE",
    "TENSOR",
    "TRIPS",
    "Branch",
    "Call",
    "Composite",
    "Composites",
    "Const",
    "Graph",
    "GraphBuilder",
    "Handle",
    "Index",
    "Loop",
    "Meta",
    "Module",
    "Named",
    "Op",
    "OpView",
    "Out",
    "Phase",
    "Role",
    "Source",
    "Storage",
    "Tensor",
    "guessed_trips",
    "load",
    "save",
    "unrolled",
    "validate",
    "with_trips",
    "written_out",
]
