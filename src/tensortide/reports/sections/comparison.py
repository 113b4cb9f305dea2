"""Sections of a comparison: of steps the cause, metrics beside each other and where the difference is; of metrics
alone these, and those that cannot be compared."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tensortide.differences import Values
from tensortide.measures.comparison import Comparison, MetricPair
from tensortide.measures.differences.compared import Compared, Entrant
from tensortide.measures.differences.limits import Threshold
from tensortide.measures.differences.step import StepDifference
from tensortide.measures.metric import Missing
from tensortide.measures.registry import default_registry
from tensortide.measures.status import Entry, Status
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table
from tensortide.reports.of_differences import change_text, signed_text
from tensortide.reports.of_records import table
from tensortide.reports.pictures import Curve, Series
from tensortide.reports.render.values import value_text
from tensortide.reports.sections import comparison_places
from tensortide.reports.sections.headline import headline, ops_without_rule
from tensortide.reports.sections.metrics import ordered
from tensortide.studies.fit.subject import batch_of
from tensortide.units import format_bytes

SHOWN = (
    "flops",
    "recomputed_flops",
    "bytes",
    "step_peak",
    "saved_activations",
    "total_params",
    "model_size",
    "ops",
    "step_time",
    "utilization",
)
"""Metrics that text shows, where a side has them, before those beyond the default set; the page has all."""
PER_SAMPLE = {"step_time": "time", "flops": "FLOPs"}
"""Metrics that are also said of a sample where steps take different numbers of them, and their names in a sentence."""
THRESHOLD = (
    *("limit.text as threshold", "pair.metric.name as metric", "pair.metric.unit", "letter"),
    *("reference", "value", "allowed", "outcome"),
)
_BETTER = {"lower": "smaller is better", "higher": "larger is better", "": ""}


def document(found: Compared | Comparison) -> Document:
    """Make the Document: what changed and the metrics first, then for each other where the difference is."""
    if isinstance(found, Comparison):
        title = f"{found.reference.name} and {', '.join(status.name for status in found.others)}"
        return Section("metrics", "Metrics", blocks=(_metrics_alone(found), *_reasons(found))).document(title)
    sections = [summary(found)]
    for other, step in zip(found.others, found.steps, strict=True):
        if step is not None:
            sections += _places(found, step, f"_{other.letter.lower()}" * (len(found.others) > 1))
    sources = {one.side.durations.source for one in found.entrants if one.side and one.side.durations}
    lines = [
        f"{one.letter}{' (reference)' if one is found.base else ''}: {_described(found, place, sources)}"
        for place, one in enumerate(found.entrants)
    ]
    lines += [f"time: {source}" for source in sources if len(sources) == 1]
    title = " and ".join(dict.fromkeys(one.name or one.letter for one in found.entrants))
    return Document(title=f"{title} compared", subtitle=tuple(lines), sections=tuple(sections))


def _described(found: Compared, place: int, sources: Collection[str]) -> str:
    """Describe one of the steps: its name, its settings that the others do not share, its times."""
    one = found.entrants[place]
    settings = [other.status.of.get("hyperparameters", {}) for other in found.entrants]
    shared = {key for key, value in settings[0].items() if all(key in each and each[key] == value for each in settings)}
    parts = [one.name, "  ".join(f"{key}={value}" for key, value in settings[place].items() if key not in shared)]
    if one.side is None:
        parts.append("saved metrics")
    elif one.side.durations is not None and len(sources) > 1:
        parts.append(f"time: {one.side.durations.source}")
    return "; ".join(filter(None, parts))


# -- what changed -----------------------------------------------------------------------------------


def summary(found: Compared) -> Section:
    """Make the section with the cause, limits that are exceeded, and metrics."""
    blocks: list[AnyBlock] = []
    steps = [(other, step) for other, step in zip(found.others, found.steps, strict=True) if step is not None]
    for other, step in steps:
        before = f"{found.base.letter} → {other.letter}: " if len(found.others) > 1 else ""
        first, *more = headline(step)
        blocks.append(Note(text=before + first, kind="verdict"))
        blocks += (Note(text=text, kind="advice") for text in (*more, *_per_sample(found, other)))
    blocks += _limits(found)
    blocks += _metrics_of_steps(found)
    blocks += (Note(text=text, kind="warning") for _, step in steps if (text := ops_without_rule(step)))
    return Section("comparison", "What changed", blocks=tuple(blocks))


def _batches(a: Status, b: Status) -> tuple[int, int] | None:
    """The numbers of samples of two steps, if they are known and differ."""
    sizes = [batch_of(one.of.get("hyperparameters", {})) for one in (a, b)]
    one, other = (0 if size is None else size[1] for size in sizes)
    return (one, other) if one and other and one != other else None


def _per_sample(found: Compared, other: Entrant) -> Iterator[str]:
    """Costs of a sample in both steps, where they take different numbers of them."""
    sizes = _batches(found.base.status, other.status)
    if sizes is None:
        return
    told = []
    for name, words in PER_SAMPLE.items():
        pair = found.metrics.pair(name, found.others.index(other)) if name in found.metrics.names else None
        if pair is not None and pair.numbers is not None and not any(pair.bounds):
            each = Values(*(number / size for number, size in zip(pair.numbers, sizes, strict=True)))
            told.append(f"{words} {change_text(each, pair.metric.unit)}")
    if told:
        yield f"Per sample: {', '.join(told)}."


def _limits(found: Compared) -> Iterator[AnyBlock]:
    """State every limit that is exceeded, and by how much; for data all as they were tried."""
    for one in found.exceeded:
        yield Note(text=_exceeded_text(one), kind="failure")
    if found.limits and not found.exceeded:
        texts = ", ".join(limit.text for limit in found.limits)
        within = "all thresholds" if len(found.limits) > 1 else "the threshold"
        yield Note(text=f"Within {within}: {texts}", kind="advice")
    if found.thresholds:
        yield table(Threshold, found.thresholds, *THRESHOLD, key="thresholds", only="data")


def _exceeded_text(one: Threshold) -> str:
    """Say which limit is exceeded, by which step and by how much."""
    metric, numbers = one.pair.metric, one.pair.numbers
    assert numbers is not None
    if one.outcome == "undecided":
        return f"Cannot tell {one.limit.text}: {metric.title} leaves out ops without a cost rule (count --missing)"
    a, b, over = (value_text(value, metric.unit) for value in (*numbers, abs(numbers.b - one.allowed)))
    side = "below" if metric.direction == "higher" else "over"
    change = f"{metric.title} {a} → {b} ({one.pair.words}) in {one.letter}"
    return f"Exceeded {one.limit.text}: {change}, {over} {side} the limit"


# -- metrics ----------------------------------------------------------------------------------------


def _metrics_of_steps(found: Compared) -> Iterator[Table]:
    """The usual metrics and those beyond the default set, for text; all, for the page."""
    letters = [one.letter for one in (found.base, *found.others)]
    usual, names = [*filter(found.metrics.names.__contains__, SHOWN)], default_registry()
    more = [name for name in found.metrics.names if name not in SHOWN]
    beyond = [name for name in more if name not in names]
    yield _metrics(found.metrics, [*usual, *beyond], letters, letters, key="metrics", only="text")
    yield _metrics(found.metrics, [*usual, *more], letters, letters, key="all_metrics", only="page")


def _metrics_alone(found: Comparison) -> Table:
    labels = [one.name for one in (found.reference, *found.others)]
    letters = [chr(ord("A") + place) for place in range(len(labels))]
    return _metrics(found, ordered(found.names), letters, labels, key="metrics", heads=1)


def _metrics(
    found: Comparison, names: Sequence[str], letters: Sequence[str], labels: Sequence[str], **options: Any
) -> Table:
    """One row per metric that two have, a column per side; beside each other the change in words, and which is better.
    What is shown of numbers is text, as units differ; data has both."""
    rows = [[found.pair(name, other) for other in range(len(found.others))] for name in names]
    rows = [pairs for pairs in rows if any(pair.numbers is not None and any(pair.numbers) for pair in pairs)]
    first, several = [pairs[0] for pairs in rows], len(found.others) > 1
    columns = [
        Column("title", "Metric", "text", tuple(pair.metric.title for pair in first)),
        Column("name", "", "text", tuple(pair.metric.name for pair in first), data=True),
        Column("unit", "", "text", tuple(pair.metric.unit for pair in first), data=True),
        Column("reference_text", labels[0], "number", tuple(_text(pair, 0) for pair in first)),
        Column("reference", "", "number", tuple(_number(pair, 0) for pair in first), data=True),
    ]
    for number, (letter, label) in enumerate(zip(letters[1:], labels[1:], strict=True)):
        pairs, tail = [row[number] for row in rows], f"_{letter.lower()}"
        differences = tuple(signed_text(pair.difference, pair.metric.unit) for pair in pairs)
        like = _batches(found.reference, found.others[number]) is None  # a larger batch costs more, and is not worse
        better = tuple(pair.verdict if like and pair.verdict in ("better", "worse") else "" for pair in pairs)
        columns += [
            Column(f"value{tail}_text", label, "number", tuple(_text(pair, 1) for pair in pairs)),
            Column(f"difference{tail}_text", "difference", "number", differences, at_width=120 * several),
            Column(f"change{tail}_text", "change", "text", tuple(pair.words for pair in pairs)),
            Column(f"verdict{tail}", "", "text", better, at_width=110 * several),
            Column(f"value{tail}", "", "number", tuple(_number(pair, 1) for pair in pairs), data=True),
            Column(f"difference{tail}", "", "number", tuple(pair.difference for pair in pairs), data=True),
            Column(f"change{tail}", "", "change", tuple(pair.change for pair in pairs), data=True),
        ]
    direction = tuple(_BETTER[pair.metric.direction] for pair in first)
    columns.append(Column("direction", "", "text", direction, at_width=140 if several else 120, dim=True))
    return Table(columns=tuple(columns), **options)


def _number(pair: MetricPair, side: int) -> int | float | None:
    entry = (pair.reference, pair.other)[side]
    return None if entry is None else entry.number


def _text(pair: MetricPair, side: int) -> str:
    """Print a value; a cost that leaves out ops without a rule is a lower bound."""
    value = _number(pair, side)
    return "-" if value is None else ">= " * pair.bounds[side] + value_text(value, pair.metric.unit)


def _reasons(found: Comparison) -> Iterator[Note]:
    """Say which metrics cannot be compared, those with one reason together; not those that neither has."""
    for number, status in enumerate(found.others):
        by_reason: dict[str, list[str]] = {}
        for pair in (found.pair(name, number) for name in ordered(found.names)):
            if pair.numbers is None and not (_is_missing(pair.reference) and _is_missing(pair.other)):
                by_reason.setdefault(pair.words, []).append(pair.metric.name)
        for reason, names in by_reason.items():
            yield Note(text=f"{status.name}, not compared: {', '.join(names)} ({reason})", kind="coverage")


def _is_missing(entry: Entry | None) -> bool:
    return entry is None or isinstance(entry.value, Missing)


# -- where ------------------------------------------------------------------------------------------


def _places(found: Compared, step: StepDifference, tail: str) -> Iterator[Section]:
    """Make the sections that say where one step differs from the reference; none if nothing does."""
    made = (
        comparison_places.modules(step, found.top, found.depth, tail),
        comparison_places.ops(step, found.top, tail),
        comparison_places.peaks(step, found.top, tail),
        _over_time(step, tail),
    )
    return (section for section in made if section is not None)


def _over_time(step: StepDifference, tail: str) -> Section | None:
    """Draw the memory of both over one axis."""
    curves, (one, other) = step.curves, step.letters
    if curves is None:
        return None
    peaks = ", ".join(
        f"{letter} peaks at {format_bytes(side.memory.peak_bytes)} in {side.phases[side.peak_op]}"
        for letter, side in zip(step.letters, (step.a, step.b), strict=True)
    )
    axis = "over time" if curves.unit == "ns" else f"over the ops of {one}, those of {other} spread over as much"
    curve = Curve(
        key="resident",
        x=curves.x,
        x_unit=curves.unit,
        ops=curves.ops,
        stack=(Series("a", one, curves.a),),
        lines=(Series("b", other, curves.b),),
    )
    return Section(f"over_time{tail}", f"Memory of {one} and {other}", f"{axis}; {peaks}", (curve,), folded=True)
