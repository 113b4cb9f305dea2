"""Ops of a graph that have no rule, and the code to start one from."""

from __future__ import annotations

import keyword
import re

import msgspec

from tensortide.cost.count import count
from tensortide.cost.coverage import OpGroup
from tensortide.cost.evaluate import Resolver
from tensortide.cost.opcall import OpCall, qualified
from tensortide.graph.model import Graph, Tensor

__all__ = ["Missing", "missing"]


class Missing(msgspec.Struct, frozen=True):
    """Ops of one name without a rule, and a ``stub`` of a rule to paste and complete."""

    group: OpGroup
    stub: str

    def __str__(self) -> str:
        return f"{self.group}\n\n{self.stub}"


def missing(graph: Graph, *, resolver: Resolver | None = None) -> list[Missing]:
    """The ops of ``graph`` that have no rule, the most frequent first."""
    counted = count(graph, resolver=resolver)
    unknown = [i for i, cost in enumerate(counted.costs) if cost.cost is None]
    examples: dict[str, int] = {}
    for i in unknown:
        examples.setdefault(graph[i].name.removesuffix(".default"), i)
    return [Missing(group, _stub(OpCall.of(graph[examples[group.name]]))) for group in counted.coverage.missing]


def _stub(call: OpCall) -> str:
    function = re.sub(r"\W", "_", call.base).strip("_") or "op"
    if keyword.iskeyword(function):
        function += "_op"
    lines = ["import tensortide.cost", "from tensortide.cost import Cost", "", ""]
    lines += [f'@tensortide.cost.rule("{call.name}", formula="...")', f"def {function}(op):"]
    lines += [f'    """What {qualified(call.name.replace("::", "."))} computes."""']
    names = []
    for name, value in call.arguments.items():
        variable = f"{name}_" if keyword.iskeyword(name) or name == "op" else name
        if isinstance(value, Tensor):
            names.append(variable)
            lines.append(f'    {variable} = op.shape("{name}")  # {value.shape}, {value.dtype}')
        else:
            lines.append(f'    {variable} = op.arg("{name}")  # {_short(value)}')
    lines.append(f"    # outputs: {', '.join(str(t.shape) for t in call.outputs) or 'none'}")
    lines.append("    return Cost(macs=..., elementwise_flops=...)")
    return "\n".join(lines) + "\n"


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return str(value)[:60]
