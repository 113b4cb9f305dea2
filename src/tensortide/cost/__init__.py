"""Cost of an op, a module or a step: FLOPs, multiply-accumulates and bytes, from one table of rules."""

from __future__ import annotations

from tensortide.cost.access import Bytes, interface, nothing, reads, writes_only
from tensortide.cost.count import PHASES, Count, count
from tensortide.cost.coverage import Coverage, OpGroup
from tensortide.cost.evaluate import OpCost, Resolver
from tensortide.cost.explain import Explanation, Missing, explain, missing
from tensortide.cost.families import FAMILIES, read_rows
from tensortide.cost.opcall import OpCall
from tensortide.cost.parameters import ModelSizes
from tensortide.cost.record import Cost
from tensortide.cost.registry import Rule, rule
from tensortide.cost.totals import ModuleTotal, Total

__all__ = [
    "FAMILIES",
    "PHASES",
    "Bytes",
    "Cost",
    "Count",
    "Coverage",
    "Explanation",
    "Missing",
    "ModelSizes",
    "ModuleTotal",
    "OpCall",
    "OpCost",
    "OpGroup",
    "Resolver",
    "Rule",
    "Total",
    "count",
    "explain",
    "interface",
    "missing",
    "nothing",
    "read_rows",
    "reads",
    "rule",
    "writes_only",
]
