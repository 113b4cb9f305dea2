"""Where the time of a step goes: durations of ops by op, module and phase, the step's account, and rates reached."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator

import msgspec

from tensortide.cost import Resolver, count
from tensortide.cost.coverage import shapes_of, shown
from tensortide.graph.model import Graph
from tensortide.reports.modules import pattern
from tensortide.reports.tables import phase_of
from tensortide.timing import Durations, Machine, Sample

__all__ = ["Account", "ProfileDocument", "TimeRow", "profile_document"]

FORMAT = "tensortide.profile/1"


class TimeRow(msgspec.Struct, frozen=True, kw_only=True):
    """Ops that share something. Times in nanoseconds; ``ns`` of one step, the others of one call.

    ``min_ns`` is the smallest seen, ``median_ns`` and ``p90_ns`` are medians over the ops. ``stand_ins`` counts ops
    whose time is an estimate, ``unpriced`` those whose FLOPs are unknown: ``flops`` leaves them out.
    """

    name: str
    ops: int
    calls: int
    ns: int
    share: float
    median_ns: int
    min_ns: int
    p90_ns: int
    flops: int
    accessed_bytes: int
    shapes: str = ""
    phase: str = ""
    depth: int = 0
    modules: int = 1
    stand_ins: int = 0
    unpriced: int = 0

    @property
    def flops_per_s(self) -> float:
        return self.flops * 1e9 / self.ns if self.ns else 0.0

    @property
    def bytes_per_s(self) -> float:
        return self.accessed_bytes * 1e9 / self.ns if self.ns else 0.0


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What an ordinary step is made of. ``difference`` is how far ops and overhead miss it, as a part of it.

    ``noise`` is the sum of the ops' shortest times over that of their medians: how much they scatter.
    """

    ops_ns: int
    overhead_ns: dict[str, int]
    explained_ns: int
    step: Sample | None
    difference: float | None
    hooked: Sample | None
    hook_ns: int | None
    noise: float | None


class ProfileDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``tensortide profile`` shows."""

    format: str = FORMAT
    target: str
    source: str
    how: str
    clock: str
    ops: int
    machine: Machine | None
    warm_up: int
    steady: bool
    account: Account
    phases: tuple[TimeRow, ...]
    by_op: tuple[TimeRow, ...]
    by_shapes: tuple[TimeRow, ...]
    modules: tuple[TimeRow, ...]
    unknown: dict[str, int]
    notes: tuple[str, ...]


class _Timed(msgspec.Struct, frozen=True):
    """One op with what is shown of it."""

    index: int
    calls: int
    ns: int
    min_ns: int
    p90_ns: int
    known: bool
    flops: int | None
    nbytes: int


def profile_document(
    graph: Graph, durations: Durations, *, target: str, resolver: Resolver | None = None
) -> ProfileDocument:
    """The document of ``durations``, which are of ``graph``. An op in a loop counts as often as it runs."""
    found = durations.measurement
    ops = _timed(graph, durations, resolver)
    whole = sum(op.ns * op.calls for op in ops)

    def rows(key: Callable[[int], tuple[str, str, str]]) -> list[TimeRow]:
        groups: dict[tuple[str, str, str], list[_Timed]] = {}
        for op in ops:
            groups.setdefault(key(op.index), []).append(op)
        made = [_row(members, whole, name, shapes, phase) for (name, shapes, phase), members in groups.items()]
        return sorted(made, key=lambda row: -row.ns)

    reasons: dict[str, int] = {}
    for index, reason in (found.stand_ins if found else {}).items():
        text = f"{shown(graph[index].name)}: {reason}"
        reasons[text] = reasons.get(text, 0) + 1
    return ProfileDocument(
        target=target,
        source=durations.source,
        how=found.how if found else durations.kind,
        clock=found.clock if found else "unknown",
        ops=len(graph),
        machine=found.machine if found else None,
        warm_up=found.warm_up if found else 0,
        steady=found.steady if found else True,
        account=_account(durations, whole),
        phases=tuple(rows(lambda i: (phase_of(graph.ops[i]), "", ""))),
        by_op=tuple(rows(lambda i: (shown(graph[i].name), "", phase_of(graph.ops[i])))),
        by_shapes=tuple(rows(lambda i: (shown(graph[i].name), shapes_of(graph[i]), phase_of(graph.ops[i])))),
        modules=tuple(_modules(graph, ops, whole)),
        unknown=reasons,
        notes=found.notes if found else (),
    )


def _timed(graph: Graph, durations: Durations, resolver: Resolver | None) -> list[_Timed]:
    found = durations.measurement
    mins = found.min_ns if found and found.min_ns else durations.ns
    p90s = found.p90_ns if found and found.p90_ns else durations.ns
    unknown = found.stand_ins if found else {}
    costs = count(graph, resolver=resolver).costs
    return [
        _Timed(
            index,
            int(graph.trips(index)),
            ns,
            mins[index],
            p90s[index],
            index not in unknown,
            None if cost.cost is None else int(cost.cost.flops),
            int(cost.nbytes),
        )
        for index, (ns, cost) in enumerate(zip(durations.ns, costs, strict=True))
    ]


def _row(
    members: Iterable[_Timed],
    whole: int,
    name: str,
    shapes: str = "",
    phase: str = "",
    depth: int = 0,
    modules: int = 1,
) -> TimeRow:
    ops = list(members)
    known = [op for op in ops if op.known] or ops
    ns = sum(op.ns * op.calls for op in ops)
    return TimeRow(
        name=name,
        ops=len(ops),
        calls=sum(op.calls for op in ops),
        ns=ns,
        share=ns / whole if whole else 0.0,
        median_ns=round(statistics.median(op.ns for op in known)),
        min_ns=min(op.min_ns for op in known),
        p90_ns=round(statistics.median(op.p90_ns for op in known)),
        flops=sum((op.flops or 0) * op.calls for op in ops),
        accessed_bytes=sum(op.nbytes * op.calls for op in ops),
        shapes=shapes,
        phase=phase,
        depth=depth,
        modules=modules,
        stand_ins=sum(not op.known for op in ops),
        unpriced=sum(op.flops is None for op in ops),
    )


class _Node:
    """A module, or numbered siblings together, while ops are being added."""

    def __init__(self) -> None:
        self.ops: list[_Timed] = []
        self.paths: set[str] = set()
        self.below: dict[str, _Node] = {}


def _modules(graph: Graph, ops: Iterable[_Timed], whole: int) -> Iterable[TimeRow]:
    """The tree of modules with everything below each; numbered siblings are one row."""
    tree = _Node()
    for op in ops:
        path = graph.module_path(graph.ops[op.index].module)
        node, real = tree, path.split(".")
        for level, part in enumerate(pattern(path).split("."), 1):
            node = node.below.setdefault(part, _Node())
            node.ops.append(op)
            node.paths.add(".".join(real[:level]))
    return _rows_below(tree, whole, 0)


def _rows_below(node: _Node, whole: int, depth: int, prefix: str = "") -> Iterator[TimeRow]:
    """A module that only encloses others of one name (a list of blocks) shares their row."""
    for name, child in sorted(node.below.items(), key=lambda item: -sum(op.ns * op.calls for op in item[1].ops)):
        inner = next(iter(child.below.values())) if len(child.below) == 1 else None
        if inner is not None and len(inner.ops) == len(child.ops):
            yield from _rows_below(child, whole, depth, f"{prefix}{name}.")
            continue
        yield _row(child.ops, whole, prefix + name, depth=depth, modules=len(child.paths))
        yield from _rows_below(child, whole, depth + 1)


def _account(durations: Durations, ops: int) -> Account:
    """The account of a step whose ops take ``ops`` nanoseconds together."""
    found = durations.measurement
    if found is None:
        return Account(
            ops_ns=ops,
            overhead_ns={},
            explained_ns=ops,
            step=None,
            difference=None,
            hooked=None,
            hook_ns=None,
            noise=None,
        )
    explained = ops + sum(found.overhead_ns.values())
    step = found.step
    complete = step is not None and step.median_ns > 0 and found.overhead_ns
    return Account(
        ops_ns=ops,
        overhead_ns=found.overhead_ns,
        explained_ns=explained,
        step=step,
        difference=explained / step.median_ns - 1 if complete and step is not None else None,
        hooked=found.hooked,
        hook_ns=found.hook_ns,
        noise=sum(found.min_ns) / sum(durations.ns) if any(durations.ns) and not found.stand_ins else None,
    )
