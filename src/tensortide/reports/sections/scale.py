"""Section ``scale``: a step on many devices: the fastest configuration, all others, and what becomes of it at scale."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tensortide.parallelism.closed import Configuration
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table
from tensortide.reports.pictures import Axis, Limit, Points, Scatter, Spans
from tensortide.reports.render.values import value_text
from tensortide.reports.sections.scale_run import section as run_section
from tensortide.reports.sections.timeline_lanes import lanes_of
from tensortide.studies.scale import Candidate, Scale, ScalePrediction, ScalingRow
from tensortide.studies.scale.timeline import with_shown_micro_batches
from tensortide.timelines.timeline import Timeline
from tensortide.timing.estimates import Provenance
from tensortide.units import format_bytes, parse_bytes

__all__ = ["document", "section"]

HOURS_NS = 3600 * 1e9
_NEAR = 4
"""The limit of a device is drawn if it is at most this many times the largest memory."""
_NUMBER = re.compile(r"(\d+(?:[.,]\d+)*(?: [KMGTPE]?i?B\b)?)")
"""A number in a reason, with its unit of bytes."""
_REFUSED = ("data", "tensor", "pipeline", "micro_batch", "context", "expert", "chunks", "kv_group", "step", "memory")
"""Columns of refused configurations that pages show."""
_COMMUNICATION = ("tensor", "context", "expert", "transfer", "data")
"""Parts that are exposed communication: collectives of every group, transfers between stages."""
_BASIS = {
    Provenance.MEASURED: "steps like it were measured",
    Provenance.CALIBRATED: "constants were fitted on this machine",
    Provenance.INTERPOLATED: "constants were fitted on this device, among such sizes",
    Provenance.EXTRAPOLATED: "constants are those of other devices or sizes",
    Provenance.PHYSICS: "peak rates of the data sheet alone",
    Provenance.UNKNOWN: "some ops have no known time",
}
_PARTS = {
    "compute": "compute of the layers",
    "recompute": "recomputation",
    "tensor": "tensor-parallel collectives, exposed",
    "host": "host, where it is slower than both",
    "context": "exchange of keys and values, exposed",
    "expert": "exchange of tokens with experts",
    "bubble": "bubble of the pipeline",
    "transfer": "transfers between stages",
    "head": "head and loss",
    "data": "gradients and parameters, exposed",
    "optimizer": "optimizer",
    "rest": "other, once per step",
    "straggler": "stragglers (assumed 0.5 % deviation)",
}
"""What takes time, in words."""


def document(found: Scale) -> Document:
    """Show everything that was found, and what a run of the best has measured."""
    one = found.problem.base
    settings = {
        "batch": one.batch,
        "devices": found.problem.cluster.size,
        "zero": one.zero,
        **({"zero_group": one.zero_group} if one.zero_group else {}),
        "recompute": one.recompute,
        "schedule": one.schedule,
    }
    about = f"one training step on {found.problem.cluster.name}, by {found.how}"
    made = section(found).document(found.name, about, settings=settings)
    ran = () if found.measured is None else (run_section(found, found.measured),)
    return replace(made, sections=(*made.sections, *ran))


def section(found: Scale) -> Section:
    """Make the section alone."""
    blocks: list[AnyBlock] = [*_verdict(found)]
    if found.untried:
        text = f"Interrupted: {found.untried:,} configurations were not tried."
        blocks.append(Note(text=text, kind="warning"))
    best = found.best
    if best is not None and best.found is not None:
        blocks += [_facts(found, best, best.found), _parts(best.found), _memory(best.found)]
        blocks += [Note(text=text) for text in best.found.remarks]
    blocks += [*_configurations(found), *_refused(found)]
    blocks += [*_scaling("strong", "Strong scaling: the same batch", found, found.strong)]
    blocks += [*_scaling("weak", "Weak scaling: the same batch for each replica", found, found.weak)]
    blocks += [*_pictures(found)]
    return Section("scale", "Scale", blocks=tuple(blocks))


def _verdict(found: Scale) -> Iterator[Note]:
    best = found.best
    if best is None or best.found is None:
        refused = len(found.refused)
        least = min((one.found.memory_bytes for one in found.refused if one.found is not None), default=None)
        more = f" The least memory that any needs: {format_bytes(least)}." if least is not None else ""
        none = "The only configuration cannot run." if refused == 1 else f"None of {refused:,} configurations can run."
        yield Note(text=f"{none}{more}", kind="failure")
        return
    one, time = best.configuration, best.found.time
    of = f"of {len(found.legal):,} that fit" if len(found.legal) > 1 else ""
    text = (
        f"{_degrees(best)}: {value_text(time.time_ns, 'ns')} a step, {value_text(time.low_ns, 'ns')} to "
        f"{value_text(time.high_ns, 'ns')} in 8 of 10 cases; {format_bytes(best.found.memory_bytes)} of memory"
    )
    yield Note(text=f"Fastest {of}: {text}." if of else f"With {text}.", kind="verdict")
    batches = f"{one.micro_batches:,} micro-batch{'es' * (one.micro_batches > 1)} of {one.micro_batch}"
    yield Note(text=f"{batches}; {one.schedule}.")


def _degrees(outcome: Candidate) -> str:
    one = outcome.configuration
    parts = [f"data {one.data}", f"tensor {one.tensor}", f"pipeline {one.pipeline}"]
    parts += [f"context {one.context}"] * (one.context > 1) + [f"expert {one.expert}"] * (one.expert > 1)
    parts += [f"kv-group {one.kv_group}"] * (one.kv_group > 0)
    return " x ".join(parts[:3]) + "".join(f", {part}" for part in parts[3:])


def _facts(found: Scale, best: Candidate, made: ScalePrediction) -> Facts:
    one, ns = best.configuration, made.time.time_ns
    devices, price = found.problem.cluster.size, found.problem.price_per_hour
    tokens, what = one.batch * found.tokens, found.counts
    hours = devices * ns / HOURS_NS
    each = f"{found.tokens:,} per sample: one sequence" if found.tokens > 1 else ""
    rows = [
        Fact("step", "Step", round(ns), "ns"),
        Fact("low", "", round(made.time.low_ns), "ns", data=True),
        Fact("high", "", round(made.time.high_ns), "ns", data=True),
        Fact("provenance", "Provenance of the time", str(made.time.provenance), remark=_BASIS[made.time.provenance]),
        Fact("samples_per_s", "Samples a second", _rounded(one.batch / ns * 1e9), "amount"),
        Fact("rate", f"{what.capitalize()} a second and device", _rounded(tokens / ns * 1e9 / devices), "amount", each),
        Fact("device_hours", f"Device-hours for 1e9 {what}", _rounded(hours / tokens * 1e9), "amount"),
        Fact("mfu", "Model FLOPs utilization", _mfu(made, devices), "share", found.counted),
        Fact("memory", "Memory of the fullest device", round(made.memory_bytes), "bytes"),
        Fact("data", "", one.data, "count", data=True),
        Fact("tensor", "", one.tensor, "count", data=True),
        Fact("kv_group", "", one.kv_group, "count", data=True),
        Fact("pipeline", "", one.pipeline, "count", data=True),
        Fact("context", "", one.context, "count", data=True),
        Fact("expert", "", one.expert, "count", data=True),
        Fact("micro_batch", "", one.micro_batch, "count", data=True),
        Fact("chunks", "", one.chunks, "count", data=True),
    ]
    if price is not None:
        rows.append(Fact("price", f"Price of 1e9 {what}", _rounded(hours / tokens * 1e9 * price), "amount"))
    return Facts(rows=tuple(rows))


def _mfu(made: ScalePrediction, devices: int) -> float | None:
    return None if math.isnan(made.ideal_ns) else made.ideal_ns / (devices * made.time.time_ns)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _parts(made: ScalePrediction) -> Table:
    rows = [(name, ns) for name, ns in made.parts.items() if round(ns) > 0]
    whole = made.time.time_ns
    columns = (
        Column("part", "Time", "text", tuple(_PARTS.get(name, name) for name, _ in rows), fold=True),
        Column("ns", "", "ns", tuple(round(ns) for _, ns in rows)),
        Column("share", "of the step", "share", tuple(ns / whole for _, ns in rows)),
        Column("key", "", "text", tuple(name for name, _ in rows), data=True),
    )
    return Table(key="parts", title="What takes the time", columns=columns)


def _memory(made: ScalePrediction) -> Table:
    rows = [(name, nbytes) for name, nbytes in made.memory.items() if nbytes > 0]
    columns = (
        Column("what", "Memory", "text", tuple(name for name, _ in rows)),
        Column("bytes", "", "bytes", tuple(round(nbytes) for _, nbytes in rows)),
    )
    return Table(key="memory", title="What takes the memory of the fullest device", columns=columns, beside=True)


def _configurations(found: Scale) -> Iterator[Table]:
    if len(found.legal) > 1:
        yield Table(
            key="configurations",
            title="Configurations that fit",
            remark="the fastest first",
            columns=tuple(_columns(found, found.legal)),
            top=15,
        )


def _columns(found: Scale, rows: Sequence[Candidate]) -> Iterator[Column]:
    configurations, made = [one.configuration for one in rows], [one.found for one in rows]
    for key, label in (
        ("data", "data"),
        ("tensor", "tensor"),
        ("pipeline", "pipeline"),
        ("micro_batch", "micro-batch"),
    ):
        yield Column(key, label, "count", tuple(getattr(one, key) for one in configurations))
    for key in ("context", "expert", "chunks"):
        values = tuple(getattr(one, key) for one in configurations)
        yield Column(key, key, "count", values, data=max(values) == 1)
    groups = tuple(one.kv_group for one in configurations)
    yield Column("kv_group", "kv-group", "count", groups, data=max(groups) == 0)
    yield Column("micro_batches", "micro-batches", "count", tuple(_micro_batches(one) for one in rows), at_width=110)
    yield Column("step", "Step", "ns", tuple(None if one is None else round(one.time.time_ns) for one in made))
    yield Column("memory", "Memory", "bytes", tuple(None if one is None else round(one.memory_bytes) for one in made))
    for key, names in (("bubble", ("bubble",)), ("communication", _COMMUNICATION)):
        yield Column(key, key, "share", tuple(_share(one, names) for one in made), at_width=80)
    price = found.problem.price_per_hour
    if price is not None:
        hours = [None if one is None else found.problem.cluster.size * one.time.time_ns / HOURS_NS for one in made]
        tokens = found.tokens * found.problem.base.batch
        cost = tuple(None if each is None else _rounded(each * price / tokens * 1e9) for each in hours)
        yield Column("price", f"price of 1e9 {found.counts}", "amount", cost, at_width=90)


def _micro_batches(outcome: Candidate) -> int | None:
    one = outcome.configuration
    rest = one.batch % (one.data * one.micro_batch)
    return None if rest else one.micro_batches


def _share(made: ScalePrediction | None, names: Sequence[str]) -> float | None:
    return None if made is None else sum(made.parts.get(name, 0.0) for name in names) / made.time.time_ns


def _refused(found: Scale) -> Iterator[AnyBlock]:
    if not found.refused:
        return
    groups: dict[str, list[Candidate]] = {}
    for one in found.refused:
        groups.setdefault(_kind(one.reason), []).append(one)
    kinds = sorted(groups.values(), key=len, reverse=True)
    yield Table(
        key="reasons",
        title="Refused",
        remark="by reason",
        columns=(
            Column(
                "reason", "Reason", "text", tuple(_common([one.reason for one in some]) for some in kinds), fold=True
            ),
            Column("count", "configurations", "count", tuple(map(len, kinds))),
            Column("example", "for example", "text", tuple(_named(some[0].configuration) for some in kinds), fold=True),
            Column("why", "", "text", tuple(some[0].reason for some in kinds), data=True),
        ),
    )
    columns = (
        *(replace(one, data=one.data or one.key not in _REFUSED) for one in _columns(found, found.refused)),
        Column("reason", "Reason", "text", tuple(one.reason for one in found.refused), fold=True),
    )
    yield Table(
        key="refused",
        title="Every refused configuration",
        columns=columns,
        only="page" if len(found.refused) > 1 else "data",
    )


def _kind(reason: str) -> str:
    """The first of the reasons, without its numbers."""
    return _NUMBER.sub("N", _first(reason))


def _first(reason: str) -> str:
    return reason.partition("; ")[0]


def _common(reasons: Sequence[str]) -> str:
    """Reasons of one kind as one, with all numbers that differ, or the least and the largest of many.

    Examples:
        >>> _common(["heads / tensor = 96/64 is no whole number", "heads / tensor = 96/128 is no whole number"])
        'heads / tensor = 96/64 or 128 is no whole number'
    """
    parts = zip(*(_NUMBER.split(_first(reason)) for reason in reasons), strict=True)
    return "".join(some[0] if len(set(some)) == 1 else _range(some) for some in parts)


def _range(numbers: Sequence[str]) -> str:
    found = sorted(set(numbers), key=lambda text: parse_bytes(text.replace(",", "")))
    return f"{found[0]} to {found[-1]}" if len(found) > 4 else f"{', '.join(found[:-1])} or {found[-1]}"


def _named(one: Configuration) -> str:
    """The degrees that are not 1, in words."""
    degrees = ("data", "tensor", "pipeline", "context", "expert", "chunks")
    parts = [f"{name} {getattr(one, name)}" for name in degrees if getattr(one, name) > 1]
    parts += [f"kv-group {one.kv_group}"] * (one.kv_group > 0)
    return ", ".join([*parts, f"micro-batch {one.micro_batch}"])


def _scaling(key: str, title: str, found: Scale, rows: Sequence[ScalingRow]) -> Iterator[Table]:
    if len(rows) < 2:
        return
    communication = tuple(_share(row.found, _COMMUNICATION) for row in rows)
    columns = (
        Column("devices", "Devices", "count", tuple(row.devices for row in rows)),
        Column("data", "data", "count", tuple(row.configuration.data for row in rows)),
        Column("batch", "batch", "count", tuple(row.configuration.batch for row in rows)),
        Column("micro_batch", "micro-batch", "count", tuple(row.configuration.micro_batch for row in rows)),
        Column("step", "Step", "ns", tuple(round(row.found.time.time_ns) for row in rows)),
        Column("samples_per_s", "samples/s", "amount", tuple(_rounded(row.samples_per_s) for row in rows)),
        Column("efficiency", "per device", "share", tuple(row.efficiency for row in rows)),
        Column("communication", "communication", "share", communication, at_width=80),
        Column("bubble", "bubble", "share", tuple(_share(row.found, ("bubble",)) for row in rows), at_width=80),
        Column("memory", "Memory", "bytes", tuple(round(row.found.memory_bytes) for row in rows), at_width=90),
    )
    yield Table(key=key, title=title, remark="more or fewer replicas", columns=columns)


def _pictures(found: Scale) -> Iterator[AnyBlock]:
    rows = {"strong": found.strong, "weak": found.weak}
    points = tuple(
        Points(
            label=f"{name} scaling",
            x=tuple(row.devices for row in some),
            y=tuple(row.efficiency for row in some),
            joined="line",
        )
        for name, some in rows.items()
        if len(some) > 1
    )
    if points:
        yield Scatter(
            key="scaling",
            title="Throughput per device",
            remark="relative to the fewest devices",
            x=Axis("devices", "count", log=True, ticks=tuple(sorted({x for each in points for x in each.x}))),
            y=Axis("throughput per device (fewest: 100 %)", "share", from_zero=True),
            points=points,
            only="page",
        )
    yield from _trade(found)
    if found.timeline is not None:
        yield _lanes(found, found.timeline)


def _trade(found: Scale) -> Iterator[Scatter]:
    """Time against memory of all configurations that have both."""
    known = [one for one in found.outcomes if one.found is not None]
    if len(known) < 2:
        return
    groups = {"fits": [one for one in known if not one.reason], "does not fit": [one for one in known if one.reason]}
    limit = found.problem.memory_bytes
    most = max(one.found.memory_bytes for one in known if one.found is not None)
    near = limit is not None and limit <= _NEAR * most
    of = "" if limit is None or near else f", of {format_bytes(limit)}"
    points = tuple(
        Points(
            label=label,
            x=tuple(one.found.time.time_ns / 1e9 for one in some if one.found is not None),
            y=tuple(one.found.memory_bytes for one in some if one.found is not None),
            names=tuple(_named(one.configuration) for one in some),
        )
        for label, some in groups.items()
        if some
    )
    yield Scatter(
        key="trade",
        title="Memory against time of all configurations",
        x=Axis("step time", "s", log=True),
        y=Axis(f"memory of the fullest device{of}", "bytes", log=True),
        points=points,
        across=() if limit is None or not near else (Limit("memory of a device", limit),),
        only="page",
    )


def _lanes(found: Scale, line: Timeline) -> Spans:
    """The predicted step of the best configuration."""
    one = found.outcomes[0].configuration
    some, every = with_shown_micro_batches(one).micro_batches, one.micro_batches
    part = f" with {some:,} of its {every:,} micro-batches" if some < every else ""
    remark = f"on {found.problem.cluster.name}"
    return lanes_of("timeline", f"The step{part}, predicted", line, remark=remark, only="page")
