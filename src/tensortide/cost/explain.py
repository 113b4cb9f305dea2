"""Origin of a number: the rule, its formula, its inputs and its result; where there is no rule, the start of one."""

from __future__ import annotations

import difflib
import inspect
import keyword
import re
from numbers import Integral
from typing import Annotated

import msgspec

from tensortide.cost.count import OpCosts, count, phase_of
from tensortide.cost.coverage import OpGroup, shown
from tensortide.cost.evaluate import Resolver, apply, rule_for
from tensortide.cost.opcall import OpCall, qualified
from tensortide.cost.record import Cost
from tensortide.errors import NoSuchOp, check_argument
from tensortide.graph.model import Const, Graph, OpView, Tensor, describe
from tensortide.shown import Show, Shown

_HOW = {
    "view": "only renames memory: no FLOPs, no bytes",
    "default": "no rule of its own: the default for pointwise ops, 1 per output element",
    "framework": "by the framework's own formula for this op",
    "decomposition": "by the ops it decomposes into",
    "unknown": "no rule: its cost is unknown",
}


class Explanation(Shown, msgspec.Struct, frozen=True):
    """Derivation of the cost of one op. ``file`` and ``line`` are those of the rule, empty where there is none."""

    SECTION = "count_answer"
    op: Annotated[int, Show("Op")]
    name: Annotated[str, Show("Name")]
    module: Annotated[str, Show("Module")]
    phase: Annotated[str, Show("Phase")]
    how: Annotated[str, Show("How")]
    cost: Cost | None
    rule: Annotated[str, Show("Rule")] = ""
    family: Annotated[str, Show("Family")] = ""
    formula: Annotated[str, Show("Formula")] = ""
    meaning: Annotated[str, Show("Meaning")] = ""
    file: Annotated[str, Show("File")] = ""
    line: Annotated[int, Show("Line", "number")] = 0
    arguments: tuple[tuple[str, str], ...] = ()
    outputs: tuple[str, ...] = ()
    symbols: tuple[tuple[str, str], ...] = ()
    note: Annotated[str, Show("Note")] = ""
    trips: Annotated[int, Show("Runs in a step")] = 1

    def __str__(self) -> str:
        lines = [f"op {self.op}  {self.name}  ({self.phase}, in {self.module})"]
        lines += [f"  {name} = {text}" for name, text in self.arguments]
        lines += [f"  -> {', '.join(self.outputs)}"] if self.outputs else []
        lines += [f"rule      {self.rule or _HOW.get(self.how, self.how)}"]
        lines += [f"          {self.meaning}"] if self.meaning else []
        lines += [f"family    {self.family}"] if self.family else []
        lines += [f"formula   {self.formula}"] if self.formula else []
        lines += [f"source    {self.file}:{self.line}"] if self.file else []
        if self.symbols:
            lines += ["with      " + ", ".join(f"{name} = {value}" for name, value in self.symbols)]
        lines += [f"note      {self.note}"] if self.note else []
        lines += [f"runs      {self.trips:,} times in a step; the cost is that of one run"] if self.trips != 1 else []
        return "\n".join([*lines, *_numbers(self.cost)])


def _numbers(cost: Cost | None) -> list[str]:
    if cost is None:
        return ["cost      unknown"]
    active = "unknown" if cost.active_macs is None else f"{cost.active_macs:,}"
    lines = [f"MACs      {cost.macs:,}" + ("" if cost.active_macs == cost.macs else f" (active {active})")]
    more = cost.kernel_recompute_macs
    lines += [f"          {more:,} more are issued to recompute"] if more else []
    detail = [f"{cost.transcendentals:,} special functions"] if cost.transcendentals else []
    detail += [f"{cost.comparisons:,} comparisons"] if cost.comparisons else []
    lines += [f"FLOPs     {cost.flops:,} = 2 x MACs + {cost.elementwise_flops:,} elementwise"]
    lines += [f"          of which {', '.join(detail)}"] if detail else []
    lines += [f"integer   {cost.int_ops:,}"] if cost.int_ops else []
    lines += [f"random    {cost.random_draws:,}"] if cost.random_draws else []
    lines += [f"bytes     {cost.read_bytes:,} read, {cost.written_bytes:,} written"]
    return [*lines, "exact     yes" if cost.exact else f"exact     no: {cost.reason}"]


def explain(graph: Graph, op: int | str, *, resolver: Resolver | None = None) -> Explanation:
    """Explain the cost of ``op``: an index, or the first op of a name (``mm``, ``aten.mm``, ``aten::mm.default``).

    Raises NoSuchOp, with the names that come closest.
    """
    view = _find(graph, op)
    costs = OpCosts(graph, resolver)
    known = costs.of(view.index, view.op)
    call = OpCall.of(view, costs.unused(view.index, view.op))
    rule = rule_for(call.name)
    common = Explanation(
        view.index,
        shown(view.name),
        view.module,
        phase_of(view.op),
        known.how,
        known.cost,
        arguments=tuple((name, _text(value)) for name, value in call.arguments.items()),
        outputs=tuple(map(describe, view.outputs)),
        note=known.note,
        trips=view.trips,
    )
    if rule is None or known.how not in ("rule", "view"):
        return common
    apply(rule, call)
    work = inspect.unwrap(rule.work)
    return msgspec.structs.replace(
        common,
        rule=rule.name,
        family=rule.family,
        formula=rule.formula,
        meaning=rule.meaning or inspect.cleandoc(work.__doc__ or ""),
        file=work.__code__.co_filename if inspect.isfunction(work) else "",
        line=work.__code__.co_firstlineno if inspect.isfunction(work) else 0,
        symbols=tuple((name, str(value)) for name, value in call.symbols.items()),
    )


def _find(graph: Graph, op: int | str) -> OpView:
    check_argument("op", op, (str, Integral), "the number of an op, or a name such as 'mm'")
    if not isinstance(op, str) or op.strip().lstrip("-").isdigit():
        op = int(op)
        if not -len(graph) <= op < len(graph):
            raise NoSuchOp(f"no op {op}: the graph has {len(graph)} ops, 0 to {len(graph) - 1}")
        return graph[op]
    for exact in (True, False):
        for view in graph:
            if op in _spellings(view.name, exact):
                return view
    names = sorted({shown(call.op) for call in graph.calls})
    near = difflib.get_close_matches(op, names, 5, 0.5) or [name for name in names if op.strip("_") in name][:5]
    hint = f"\nIts ops include: {', '.join(near or names[:8])}." if names else ""
    raise NoSuchOp(f"no op {op!r} in the graph.{hint}")


def _spellings(name: str, exact: bool) -> set[str]:
    """The ways to write an op's name: in full, or without overload or namespace."""
    if exact:
        return {name, qualified(name), shown(name)}
    namespace, op, *_ = name.split(".")
    return {op, f"{namespace}.{op}", f"{namespace}::{op}", name.partition(".")[2]}


def _text(value: object) -> str:
    if isinstance(value, Tensor):
        return describe(value)
    if isinstance(value, tuple):
        items = [_text(item) for item in value[:8]] + (["..."] if len(value) > 8 else [])
        return f"[{', '.join(items)}]"
    return value.value if isinstance(value, Const) else str(value)


# -- ops without a rule -----------------------------------------------------------------------------


class Missing(msgspec.Struct, frozen=True):
    """Ops of one name without a rule, and a ``stub`` of a rule to paste and complete."""

    group: OpGroup
    stub: Annotated[str, Show("Rule to complete", "code")]

    def __str__(self) -> str:
        return f"{self.group}\n\n{self.stub}"


def missing(graph: Graph, *, resolver: Resolver | None = None) -> list[Missing]:
    """The ops of ``graph`` that have no rule, the most frequent first."""
    counted = count(graph, resolver=resolver)
    views = list(zip(graph, counted.costs, strict=True))[::-1]
    first = {shown(view.name): view for view, cost in views if cost.cost is None}
    return [Missing(group, _stub(OpCall.of(first[group.name]))) for group in counted.coverage.missing]


def _stub(call: OpCall) -> str:
    function = re.sub(r"\W", "_", call.base).strip("_") or "op"
    if keyword.iskeyword(function):
        function += "_op"
    lines = [
        "# As a row of ops.toml, given as --rules ops.toml, if it is an instance of a family:",
        f'# [ops."{call.name}"]',
        '# family = "elementwise"  # python -c "from tensortide.cost import FAMILIES; print(*FAMILIES)" lists them',
        '# weights = "sigmoid"  # what the family takes; else as a function:',
    ]
    lines += ["import tensortide.cost", "from tensortide.cost import Cost", "", ""]
    lines += [f'@tensortide.cost.rule("{call.name}", formula="...")', f"def {function}(op):"]
    lines += [f'    """What {qualified(call.name.replace("::", "."))} computes."""']
    for name, value in call.arguments.items():
        variable = f"{name}_" if keyword.iskeyword(name) or name == "op" else name
        if isinstance(value, Tensor):
            lines.append(f'    {variable} = op.shape("{name}")  # {value.shape}, {value.dtype}')
        else:
            short = f"{len(value)} values" if isinstance(value, tuple) else str(value)[:60]
            lines.append(f'    {variable} = op.arg("{name}")  # {short}')
    lines.append(f"    # outputs: {', '.join(str(t.shape) for t in call.outputs) or 'none'}")
    lines.append("    return Cost(macs=..., elementwise_flops=...)")
    return "\n".join(lines) + "\n"
