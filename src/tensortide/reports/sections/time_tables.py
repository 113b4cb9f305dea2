"""Tables of measured or predicted durations by phase, by kind of op and by module."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec

from tensortide.cost.coverage import shapes_of, shown
from tensortide.graph.model import OUTSIDE_PATH, ROOT_PATH, Graph
from tensortide.graph.module_paths import as_one, pattern
from tensortide.reports.blocks import Table
from tensortide.reports.of_records import column
from tensortide.reports.sections import Step
from tensortide.reports.sections.ops import alike
from tensortide.reports.sections.predicted_times import ends_ns, interval_text
from tensortide.shown import Show
from tensortide.timing import Durations
from tensortide.timing.estimates import Estimate
from tensortide.timing.percentile import Spread, pooled_p90
from tensortide.timing.totals import total, unpredicted_ns

WIDE = 98
"""From so many columns on operands and rates of single ops are shown."""

_HEADS = {
    "phases": ("phase",),
    "ops": ("name", "phase"),
    "shapes": ("name", "operands", "phase"),
    "modules": ("module", "path", "count"),
}
"""First columns by table."""
_PREDICTED, _CALL = ("interval_text", "low_ns", "high_ns", "provenance", "unknown"), ("median_ns", "min_ns", "p90_ns")
_COSTLY = ("name", "calls", "time_ns", "interval_text", "share", "phase", "module")
_RATE, _TRAFFIC = "rate_flops_per_s", "traffic_bytes_per_s"
_Names: TypeAlias = tuple[str, ...]


class _Row(msgspec.Struct, frozen=True):
    """Ops that are shown together: times of one step (``time_ns``, ``share``) and of one call (the others), and rates.

    Of several ops ``median_ns`` is the median over them and ``p90_ns`` that of all their calls; estimates are left out
    where any op was measured. ``count`` modules that differ only by number share a row, of the ``path`` that they have
    in common. A rate of nothing is not known, one in no time is 0. Least widths are those of ops by operands.
    """

    ops: int
    calls: Annotated[int, Show("Calls")]
    time_ns: Annotated[int, Show("Time", before="guessed")]
    guessed: str
    interval_text: Annotated[str, Show("80 % interval", at_width=120, dim=True)]
    low_ns: int
    high_ns: int | None
    provenance: Annotated[str, Show("Basis", at_width=110)]
    unknown: int
    share: Annotated[float, Show("share")]
    median_ns: Annotated[int, Show("median")]
    min_ns: Annotated[int | None, Show("min", at_width=130)]
    p90_ns: Annotated[int | None, Show("p90", at_width=130)]
    flops: int
    accessed_bytes: int
    rate_flops_per_s: Annotated[float | None, Show("FLOP/s", before="partial")]
    traffic_bytes_per_s: Annotated[float | None, Show("bytes/s", at_width=110)]
    partial: str
    stand_ins: int
    unpriced: int
    name: Annotated[str, Show("Op", "name", fold=True)] = ""
    operands: Annotated[str, Show("Operands", "code", fold=True, dim=True)] = ""
    phase: Annotated[str, Show("Phase", at_width=120)] = ""
    module: Annotated[str, Show("Module", "path", fold=True, after="several")] = ""
    path: Annotated[str, Show(unit="path", data=True)] = ""
    count: int = 1
    several: str = ""
    depth: int = 0


def tables(step: Step, durations: Durations, times_ns: Sequence[int]) -> Iterator[Table]:
    """Show ``durations`` of the ops of ``step``, of which each takes ``times_ns`` in all its calls: by phase, by name,
    by name and operands, and by module."""
    predicted, names, phases = durations.forecast is not None, [shown(op.name) for op in step.graph], step.phases
    summed = partial(_summed, step, durations, times_ns, sum(times_ns))
    kinds: tuple[tuple[str, str, int | None, Iterable[_Names]], ...] = (
        ("phases", "By phase", None, zip(phases, strict=True)),
        ("ops", "By op", step.top, zip(names, phases, strict=True)),
        ("shapes", "By op and operands", step.top, zip(names, map(shapes_of, step.graph), phases, strict=True)),
    )
    for key, title, top, kind in kinds:
        groups: defaultdict[_Names, list[int]] = defaultdict(list)
        for op, name in enumerate(kind):
            groups[name].append(op)
        each = (summed(ops, **dict(zip(_HEADS[key], name, strict=True))) for name, ops in groups.items())
        rows = sorted(each, key=lambda row: -row.time_ns)
        rest, at_width = f"and {len(rows) - (top or 0):,} more kinds", WIDE * (key == "shapes")
        yield _table(key, rows, predicted, title=title, top=top, rest=rest, at_width=at_width)
    rows, depth = list(_modules(step.graph, times_ns, summed)), step.depth
    remark, depths = f"to depth {depth}, with what is inside", tuple(row.depth for row in rows)
    yield _table("modules", rows, predicted, title="By module", remark=remark, depth=depths, to_depth=depth)


def costly(step: Step, durations: Durations) -> Table:
    """Show groups of ops alike, those that take most of the time of the ops first."""
    times_ns = [ns * op.trips for ns, op in zip(durations.ns, step.graph, strict=True)]
    summed = partial(_summed, step, durations, times_ns, sum(times_ns))
    rows = [summed(some, name=name, phase=phase, module=module) for name, phase, module, some in alike(step)]
    rows.sort(key=lambda row: -row.time_ns)
    widths = {"interval_text": WIDE, "phase": WIDE}
    names = (name for name in _COSTLY if name != "interval_text" or durations.forecast is not None)
    columns = tuple(column(_Row, rows, name, at_width=widths.get(name, 0)) for name in names)
    return Table(key="costly", columns=columns)


def _summed(
    step: Step, durations: Durations, times_ns: Sequence[int], whole_ns: int, ops: Sequence[int], **names: Any
) -> _Row:
    found, ns, trips = durations.measurement, durations.ns, {op: step.graph.trips(op) for op in ops}
    mins, p90s, guessed = (found.min_ns or ns, found.p90_ns or ns, found.stand_ins) if found else (ns, ns, {})
    spreads = [Spread(mins[op], ns[op], p90s[op], trips[op]) for op in ops if op not in guessed]
    costs, time_ns = [(step.counted.costs[op], times) for op, times in trips.items()], sum(times_ns[op] for op in ops)
    flops = sum(int(one.cost.flops) * times for one, times in costs if one.cost is not None)
    accessed_bytes = sum(int(one.nbytes) * times for one, times in costs)
    stand_ins, unpriced = len(ops) - len(spreads), sum(one.cost is None for one, _ in costs)
    estimate = total(durations, ops, trips) if durations.forecast else Estimate()
    missing_ns = unpredicted_ns(durations, ops, trips)
    low_ns, high_ns = ends_ns(estimate, missing_ns)
    return _Row(
        len(ops),
        sum(trips.values()),
        time_ns,
        "~" * bool(stand_ins or estimate.unknown),
        interval_text(estimate, missing_ns) if estimate.time_ns else "",
        low_ns,
        high_ns,
        str(estimate.provenance),
        estimate.unknown,
        time_ns / whole_ns if whole_ns else 0.0,
        round(statistics.median([one.median_ns for one in spreads] or [ns[op] for op in ops])),
        min((one.min_ns for one in spreads), default=None),
        pooled_p90(spreads) if spreads else None,
        flops,
        accessed_bytes,
        _rate(flops, time_ns),
        _rate(accessed_bytes, time_ns),
        "~" * bool(unpriced and flops),
        stand_ins,
        unpriced,
        **names,
    )


def _rate(amount: int, ns: int) -> float | None:
    return (amount * 1e9 / ns if ns else 0.0) if amount else None


def _modules(graph: Graph, times_ns: Sequence[int], summed: Callable[..., _Row]) -> Iterator[_Row]:
    """The modules with everything inside each, also the root; numbered siblings are one row, and so is a module with
    the one that has all its ops (a list of blocks)."""
    inside: defaultdict[_Names, list[int]] = defaultdict(list)
    modules: defaultdict[_Names, set[str]] = defaultdict(set)
    rooted = any(not module.path for module in graph.modules)
    for number, op in enumerate(graph.ops):
        path = graph.module_path(op.module)
        above = (ROOT_PATH,) if rooted and path not in (ROOT_PATH, OUTSIDE_PATH) else ()
        name, real = (*above, *pattern(path).split(".")), path.split(".")
        for level in range(1, len(name) + 1):
            inside[name[:level]].append(number)
            modules[name[:level]].add(".".join(real[: level - len(above)]) or ROOT_PATH)
    place = {name: (-sum(times_ns[op] for op in ops), i) for i, (name, ops) in enumerate(inside.items())}
    listing = {name[:-1] for name, ops in inside.items() if len(name) > 1 and len(ops) == len(inside[name[:-1]])}
    listing.discard((ROOT_PATH,))
    for name in sorted(inside, key=lambda name: [place[name[:level]] for level in range(1, len(name) + 1)]):
        if name not in listing:
            around = [level for level in range(1, len(name)) if name[:level] not in listing]
            path, count = as_one([*modules[name]]), len(modules[name])
            parts = [*name[: len(name) - path.count(".") - 1], *path.split(".")][max(around, default=0) :]
            named = {"module": ".".join(parts), "path": path, "several": f" x{count}" * (count > 1)}
            yield summed(inside[name], count=count, depth=len(around), **named)


def _table(key: str, rows: Sequence[_Row], predicted: bool, **options: Any) -> Table:
    """Make a table. Times of one call are shown of single ops that were measured."""
    single = key in ("ops", "shapes")
    rates = (125 if single else 110) if predicted else WIDE * single
    names = (*_HEADS[key], "ops", "calls", "time_ns", *_PREDICTED * predicted, "share", *_CALL, "flops")
    names += ("accessed_bytes", _RATE, _TRAFFIC, "stand_ins", "unpriced")
    widths = {"interval_text": WIDE * single, _RATE: rates, _TRAFFIC: rates}
    changes: dict[str, dict[str, Any]] = {name: {"at_width": widths.get(name, 0)} for name in names}
    if key == "shapes":
        changes = {_RATE: {"at_width": rates}}
    if key == "phases":
        changes["phase"] = {"at_width": 0, "fold": True}
    if predicted or not single:
        changes |= {name: {"data": True} for name in _CALL}
    columns = tuple(column(_Row, rows, name, **changes.get(name, {})) for name in names)
    return Table(key=key, columns=columns, **options)
