"""Section ``scale``: a step on many devices: the fastest configuration, all others, and what becomes of it at scale."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec.structs import replace

from tensortide.parallelism.closed import Configuration
from tensortide.parallelism.degrees import AXES, DEGREES
from tensortide.reports.blocks import AnyBlock, Column, Document, Facts, Note, Section, Table
from tensortide.reports.of_records import column, columns, fact, facts, table
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.reports.render.values import value_text
from tensortide.reports.sections.scale_run import section as run_section
from tensortide.reports.sections.timeline_lanes import lanes_of
from tensortide.shown import Show
from tensortide.studies.scale import Candidate, Scale, ScalePrediction, ScalingRow
from tensortide.studies.scale.predictors import PipelineRank
from tensortide.studies.scale.timeline import with_shown_micro_batches
from tensortide.units import format_bytes, parse_bytes

_NEAR = 4
"""The limit of a device is drawn if it is at most this many times the largest memory."""
_NUMBER = re.compile(r"(\d+(?:[.,]\d+)*(?: [KMGTPE]?i?B\b)?)")
"""A number in a reason, with its unit of bytes."""
_DEGREES = (*DEGREES[:3], "micro_batch", *DEGREES[3:], "chunks", "kv_group")
_PARTS = {
    "compute": "compute of the layers",
    "recompute": "recomputation",
    "host": "host, where it is slower than both",
    **{axis.name: axis.exchanged for axis in AXES if axis.exchanged},
    "bubble": "bubble of the pipeline",
    "transfer": "transfers between stages",
    "head": "head and loss",
    "data": "gradients and parameters, exposed",
    "optimizer": "optimizer",
    "rest": "other, once per step",
    "straggler": "stragglers (assumed 0.5 % deviation)",
}
"""What takes time, in words."""


class _Part(msgspec.Struct, frozen=True):
    part: Annotated[str, Show("Time", fold=True)]
    ns: Annotated[float, Show()]
    share: Annotated[float, Show("of the step")]
    key: str


class _Taken(msgspec.Struct, frozen=True):
    what: Annotated[str, Show("Memory")]
    bytes: Annotated[float, Show()]


class _Reason(msgspec.Struct, frozen=True):
    reason: Annotated[str, Show("Reason", fold=True)]
    count: Annotated[int, Show("configurations")]
    example: Annotated[str, Show("for example", fold=True)]
    why: str


def document(found: Scale) -> Document:
    """Show everything that was found, and what a run of the best has measured."""
    one, nodes = found.problem.base, found.problem.nodes
    how = ("zero", *["zero_group"] * bool(one.zero_group), "recompute", "schedule")
    settings = {"batch": one.batch, "devices": nodes.size, **{name: getattr(one, name) for name in how}}
    about = f"one training step on {nodes.name}, by {found.how}"
    made = section(found).document(found.name, about, settings=settings)
    ran = () if found.measured is None else (run_section(found, found.measured),)
    return replace(made, sections=(*made.sections, *ran))


def section(found: Scale) -> Section:
    """Make the section alone."""
    blocks: list[AnyBlock] = [*_best(found)]
    if len(found.legal) > 1:
        title, remark, rows = "Configurations that fit", "the fastest first", _columns(found, found.legal)
        blocks.append(table(Candidate, found.legal, *rows, key="configurations", title=title, remark=remark, top=15))
    blocks += [*_refused(found, found.refused)] if found.refused else []
    strong, weak = "Strong scaling: the same batch", "Weak scaling: the same batch for each replica"
    scaled = (("strong", strong, found.strong), ("weak", weak, found.weak))
    blocks += [_scaling(*each) for each in scaled if len(each[2]) > 1]
    return Section("scale", "Scale", blocks=(*blocks, *_pictures(found)))


def _best(found: Scale) -> Iterator[AnyBlock]:
    """Say what is fastest and what it takes, or that none can run."""
    best, legal, refused = found.best, len(found.legal), len(found.refused)
    untried = f"Interrupted: {found.untried:,} configurations were not tried."
    stopped = [Note(text=untried, kind="warning")] if found.untried else []
    if best is None or best.found is None:
        least = min((one.found.peak_bytes for one in found.refused if one.found is not None), default=None)
        more = f" The least memory that any needs: {format_bytes(least)}." if least is not None else ""
        none = "The only configuration cannot run." if refused == 1 else f"None of {refused:,} configurations can run."
        yield from (Note(text=f"{none}{more}", kind="failure"), *stopped)
        return
    one, made, time = best.configuration, best.found, best.found.time
    degrees = " x ".join(f"{name} {getattr(one, name)}" for name in ("data", "tensor", "pipeline"))
    text = (
        f"{', '.join([degrees, *_above_one(one, *DEGREES[3:])])}: {value_text(time.time_ns, 'ns')} a step, "
        f"80 % interval {value_text(time.low_ns, 'ns')} to {value_text(time.high_ns, 'ns')}; "
        f"{format_bytes(made.peak_bytes)} of memory"
    )
    yield Note(text=f"Fastest of {legal:,} that fit: {text}." if legal > 1 else f"With {text}.", kind="verdict")
    batches = f"{one.micro_batches:,} micro-batch{'es' * (one.micro_batches > 1)} of {one.micro_batch}"
    yield from (Note(text=f"{batches}; {one.schedule}."), *stopped)
    yield _facts(found, best, made)
    parts = [(name, ns) for name, ns in made.parts.items() if round(ns) > 0]
    times = [_Part(_PARTS.get(name, name), ns, ns / made.step_ns, name) for name, ns in parts]
    yield table(_Part, times, key="parts", title="What takes the time")
    taken = [_Taken(name, nbytes) for name, nbytes in made.memory.items() if nbytes > 0]
    yield table(_Taken, taken, key="memory", title="What takes the memory of the fullest device", beside=True)
    if made.ranks:
        yield table(PipelineRank, made.ranks, key="pipeline_ranks", title="Stages of the pipeline", top=16)
    yield from (Note(text=text) for text in made.remarks)


def _above_one(one: Configuration, *names: str) -> list[str]:
    """The degrees ``names`` that are not 1, in words."""
    parts = [f"{name} {degree}" for name in names if (degree := getattr(one, name)) > 1]
    return [*parts, *[f"kv-group {one.kv_group}"] * (one.kv_group > 0)]


def _named(one: Configuration) -> str:
    return ", ".join([*_above_one(one, *DEGREES, "chunks"), f"micro-batch {one.micro_batch}"])


def _facts(found: Scale, best: Candidate, made: ScalePrediction) -> Facts:
    rates, counted = found.rates(best), found.counts
    each = f"{found.tokens:,} per sample: one sequence" if found.tokens > 1 else ""
    price = found.problem.price_per_hour is not None
    return facts(
        made,
        *("step_ns", "time.low_ns as step_low_ns", "time.high_ns as step_high_ns"),
        fact(made, "time.provenance", made.time.provenance.meaning, label="Basis of the time"),
        fact(rates, "samples_per_s"),
        fact(
            rates,
            f"per_s_and_device as {counted}_per_s_and_device",
            each,
            label=f"{counted.capitalize()} per second and device",
        ),
        fact(rates, f"device_hours_per_1e9 as device_hours_per_1e9_{counted}", label=f"Device-hours for 1e9 {counted}"),
        fact(rates, "mfu_share", found.counted),
        fact(made, "peak_bytes", label="Memory of the fullest device"),
        *facts(best.configuration, *_DEGREES, data=True).rows,
        *([fact(rates, f"price_per_1e9 as price_per_1e9_{counted}", label=f"Price of 1e9 {counted}")] if price else []),
    )


def _columns(found: Scale, rows: Sequence[Candidate]) -> Iterator[Column]:
    """Degrees, those of the last kinds for data alone where none has any, then what is predicted."""
    for one in columns(Candidate, rows, *(f"configuration.{name}" for name in _DEGREES)):
        yield replace(one, data=one.data or (one.key in _DEGREES[4:] and set(one.values) == {1}))
    shares = ("found.bubble_share", "found.communication_share")
    yield from columns(Candidate, rows, "micro_batches", "found.step_ns", "found.peak_bytes", *shares)
    if found.problem.price_per_hour is not None:
        prices = tuple(None if (rates := found.rates(one)) is None else rates.price_per_1e9 for one in rows)
        yield Column(f"price_per_1e9_{found.counts}", f"price of 1e9 {found.counts}", "amount", prices, at_width=90)


def _refused(found: Scale, refused: Sequence[Candidate]) -> Iterator[Table]:
    groups = defaultdict[str, list[Candidate]](list)
    for one in refused:
        groups[_NUMBER.sub("N", one.reason.partition("; ")[0])].append(one)
    reasons = [
        _Reason(_common([one.reason for one in some]), len(some), _named(some[0].configuration), some[0].reason)
        for some in sorted(groups.values(), key=len, reverse=True)
    ]
    yield table(_Reason, reasons, key="reasons", title="Refused", remark="by reason")
    own = (replace(one, data=one.data or one.at_width > 0) for one in _columns(found, refused))
    title, only = "Every refused configuration", "page" if len(refused) > 1 else "data"
    yield table(Candidate, refused, *own, "reason", key="refused", title=title, only=only)


def _common(reasons: Sequence[str]) -> str:
    """Reasons of one kind as one, with all numbers that differ, or the least and the largest of many.

    Examples:
        >>> _common(["heads / tensor = 96/64 is no whole number", "heads / tensor = 96/128 is no whole number"])
        'heads / tensor = 96/64 or 128 is no whole number'
    """
    parts = zip(*(_NUMBER.split(reason.partition("; ")[0]) for reason in reasons), strict=True)
    return "".join(some[0] if len(set(some)) == 1 else _range(some) for some in parts)


def _range(numbers: Sequence[str]) -> str:
    *others, last = sorted(set(numbers), key=lambda text: parse_bytes(text.replace(",", "")))
    return f"{others[0]} to {last}" if len(others) > 3 else f"{', '.join(others)} or {last}"


def _scaling(key: str, title: str, rows: Sequence[ScalingRow]) -> Table:
    degrees = (f"configuration.{name}" for name in ("data", "batch", "micro_batch"))
    shares = ("efficiency_share", "found.communication_share", "found.bubble_share")
    memory = column(ScalingRow, rows, "found.peak_bytes", at_width=90)
    names = ("devices", *degrees, "found.step_ns", "samples_per_s", *shares)
    remark = "with other numbers of replicas; efficiency: samples/s per device, against the fewest devices"
    return table(ScalingRow, rows, *names, memory, key=key, title=title, remark=remark)


def _pictures(found: Scale) -> Iterator[AnyBlock]:
    points = []
    for name, rows in (("strong", found.strong), ("weak", found.weak)):
        if len(rows) > 1:
            efficiency = tuple(row.efficiency_share for row in rows)
            points.append(Points(f"{name} scaling", tuple(row.devices for row in rows), efficiency, joined="line"))
    if points:
        yield Scatter(
            key="scaling",
            title="Throughput per device",
            remark="relative to the fewest devices",
            x=Axis("devices", "count", log=True, ticks=tuple(sorted({x for each in points for x in each.x}))),
            y=Axis("throughput per device (fewest: 100 %)", "share", from_zero=True),
            points=tuple(points),
            only="page",
        )
    yield from _trade(found)
    if found.timeline is not None:
        one, where = found.outcomes[0].configuration, f"on {found.problem.nodes.name}"
        some, every = with_shown_micro_batches(one).micro_batches, one.micro_batches
        part = f" with {some:,} of its {every:,} micro-batches" if some < every else ""
        yield lanes_of("timeline", f"The step{part}, predicted", found.timeline, remark=where, only="page")


def _trade(found: Scale) -> Iterator[Scatter]:
    """Time against memory of all configurations that have both."""
    known, limit = [(one, one.found) for one in found.outcomes if one.found is not None], found.problem.memory_bytes
    if len(known) < 2:
        return
    near = limit is not None and limit <= _NEAR * max(made.peak_bytes for _, made in known)
    of = "" if limit is None or near else f", of {format_bytes(limit)}"
    points = []
    for label, refused in (("fits", False), ("does not fit", True)):
        if some := [(one, made) for one, made in known if bool(one.reason) is refused]:
            times, memory = zip(*((made.step_ns / 1e9, made.peak_bytes) for _, made in some), strict=True)
            points.append(Points(label, times, memory, names=tuple(_named(one.configuration) for one, _ in some)))
    yield Scatter(
        key="trade",
        title="Memory against time of all configurations",
        x=Axis("step time", "s", log=True),
        y=Axis(f"memory of the fullest device{of}", "bytes", log=True),
        points=tuple(points),
        across=(Limit("memory of a device", limit),) if limit is not None and near else (),
        only="page",
    )
