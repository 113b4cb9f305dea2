"""Section ``run``: steps that really ran, under a memory budget or by a generated program, beside ordinary ones; the
totals of a time under a budget, and a graph of ``torch.compile`` that was planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tensortide.plans.model import Compute
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Note, Section
from tensortide.reports.of_records import fact, facts, table
from tensortide.reports.pictures import Axis, Points, Scatter
from tensortide.reports.sections import difference
from tensortide.reports.sections.assumed import assuming
from tensortide.units import format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.run.generated.aot import CompiledGraph
    from tensortide.run.generated.measure import MeasuredProgram
    from tensortide.run.least import Least
    from tensortide.run.measure import Compared, Measured
    from tensortide.run.results import Agreement
    from tensortide.run.usage import Usage
    from tensortide.studies.live import Ran

ENDED = {"oom": "runs out of memory", "thrash": "exceeds its limit of recomputation"}
AGREEMENT = (
    *("results", "first_difference", "reason", "compared_steps"),
    *("compared.compared_tensors", "compared.compared_bytes"),
)


BETWEEN = "the program, and the run's own work, which tensortide plan leaves out"
"""What a step does between ops."""


def document(ran: Ran) -> Document:
    """Show the steps that ``ran``, what the simulator predicts if they are compared with it, and what the capture of
    the step assumed."""
    from tensortide.run.generated.measure import MeasuredProgram
    from tensortide.run.least import Least

    of, sections = ran.measured, list[Section]()
    if isinstance(ran.found, Least):
        sections.append(_least(ran.found))
    if isinstance(of, MeasuredProgram):
        how, made = "a generated program", _program(of)
    else:
        how, made = of.policy, _steps(of)
    compared = [] if ran.compared is None else [_compared(ran.compared)]
    title = f"The least budget of {of.target}:" if sections else f"{of.target} under"
    title = f"{title} {format_bytes(of.budget_bytes)}, {how}"
    return assuming(Document(title=title, sections=(*sections, made, *compared)), *filter(None, [ran.graph]))


def _least(found: Least) -> Section:
    given, plain = "measured.before_bytes as least_given_bytes", found.plain_peak_bytes
    share = f"{found.measured.budget_bytes / plain:.2f} of the peak without evictions" if plain else ""
    shown = (
        fact(found, "measured.budget_bytes as least_bytes", share, label="Least budget"),
        fact(found, given, "parameters, state, inputs", label="resident before", level=1),
        *("rest_bytes as least_rest_bytes", fact(found, "failed_bytes", found.failure)),
        *("simulated_bytes", "fast_bytes", "plain_peak_bytes"),
        *(fact(found, "op_bytes", f"{found.op}, with what always stays"), "varies"),
    )
    varies = f"The step differs from call to call: {found.varies}. Another call may need more."
    notes = (Note(text=varies, kind="warning"),) if found.varies else ()
    return Section("least", "The least budget", blocks=(facts(found, *shown), *notes))


def _steps(found: Measured) -> Section:
    """The section of steps under a budget: their means."""
    step, plain = found.step, found.step.plain_peak_bytes
    asked = f"{found.asked} of the peak of the captured step" if found.asked.endswith("%") else ""
    share = f"{format_percent(found.budget_bytes, plain)} of the peak of the run without evictions" if plain else ""
    followed = step.followed_steps + step.left_steps
    planned = "" if found.planned_recomputations is None else f", {found.planned_recomputations} planned"
    shown: tuple[str | Fact, ...] = (
        fact(found, "budget_bytes", ", ".join(filter(None, (asked, share)))),
        fact(found, "step.peak_bytes", f"{format_bytes(plain)} without evictions"),
        *("before_bytes", "policy", "slowdown_factor", "plain_ns"),
        fact(found, "step.open_ns as step_ns", _slowdown(found), label="Step under the budget"),
        fact(found, "step.base_ns", f"{step.ops} ops"),
        fact(found, "step.recompute_ns", f"{step.recomputations} ops{planned}"),
        "step.arguments_ns",
        fact(found, "step.search_ns", f"{step.evictions} evictions"),
        fact(found, "step.overhead_ns", f"{format_percent(step.overhead_ns, step.open_ns)} of the step: {BETWEEN}"),
        *facts(step, "ops", "recomputations", "evictions", data=True).rows,
        fact(found, "planned_recomputations", data=True),
        fact(found, "step.followed_steps", f"of {followed}", data=not followed),
        "step.left_steps",
        *(fact(found, name, data=True) for name in ("step.unfollowed", "step.run_bytes", "command")),
    )
    which = "Every storage" if found.check == 1 else f"One storage in {found.check}"
    checked = f"{which} was checked: no unseen write, and every op repeats. Times include the checks."
    kinds = {"under the budget": found.times_ns, "ordinary": found.plain_times_ns}
    times = Scatter(
        key="step_times",
        title="Time of each step",
        x=Axis("step", "count"),
        y=Axis("time", "ns"),
        points=tuple(Points(kind, tuple(range(1, len(ns) + 1)), ns, "line") for kind, ns in kinds.items() if ns),
    )
    notes = (Note(text=checked),) if found.check else ()
    if found.budget_bytes > plain > 0 and found.planned_recomputations is None:
        notes = (*notes, Note(text="The budget is above the peak without evictions: it changes nothing."))
    if step.unfollowed:
        notes = (*notes, Note(text=step.unfollowed, kind="warning"))
    if (over := step.peak_bytes - found.budget_bytes) > 0:
        # Room is made for results before an op runs, or it is refused; workspace alone is no reason to refuse it.
        text = (
            f"The peak is {format_bytes(over)} over the budget: the workspace of kernels while they ran, for which no "
            "more could be evicted."
        )
        notes = (*notes, Note(text=text, kind="warning"))
    return Section("run", "Steps under the budget", blocks=(*_blocks(found, shown), *notes, times))


def _program(found: MeasuredProgram) -> Section:
    """The section of steps by a program: their medians."""
    head = ("budget_bytes", "planned_peak_bytes", "peak_bytes", "slowdown_factor", "plain_ns")
    ops = (fact(found, "ops", f"{found.recomputations} recomputed"), "recomputations")
    shown = (*head, fact(found, "step_ns", _slowdown(found)), *ops)
    return Section("run", "Steps by a program", blocks=_blocks(found, shown))


def _slowdown(found: Measured | MeasuredProgram) -> str:
    return "" if found.slowdown_factor is None else f"{found.slowdown_factor:.2f}x the ordinary step"


def _blocks(found: Measured | MeasuredProgram, shown: Sequence[str | Fact]) -> tuple[AnyBlock, ...]:
    """The facts ``shown``, and whether results are those of ordinary steps."""
    if found.agreement is None:
        return (facts(found, *shown),)
    more = (f"agreement.{name}" for name in AGREEMENT)
    return facts(found, *shown, *more), _agreement(found.agreement)


def _agreement(found: Agreement) -> Note:
    """Say whether the results of both kinds of steps are equal, and what was compared."""
    seen = found.compared
    left_out = f"; {seen.left_out} more cannot be read" if seen.left_out else ""
    compared = (
        f"after {found.compared_steps} steps of each kind from the same start: what the last one returned, "
        f"{seen.compared_tensors} tensors that the step reaches ({format_bytes(seen.compared_bytes)}: parameters, "
        f"gradients, optimizer state, inputs{left_out}), random generators"
    )
    if found.equal:
        return Note(text=f"Results are those of ordinary steps, bit for bit, {compared}.", kind="verdict")
    if found.equal is None:
        return Note(text=f"Results were not compared with ordinary steps: {found.reason}.", kind="warning")
    advice = "Ordinary steps repeat. --check finds the op; on a GPU its kernels may not be deterministic"
    text = f"Results differ from those of ordinary steps, first in {found.first_difference}, {compared}. {advice}."
    return Note(text=text, kind="failure")


def _compared(found: Compared) -> Section:
    """The section of what was predicted, with notes on how far the two compare."""
    notes = []
    if found.status != "ok":
        notes.append(Note(text=f"The simulator {ENDED[found.status]}: predictions are up to there.", kind="warning"))
    if found.elsewhere_bytes:
        extra = format_bytes(found.elsewhere_bytes)
        notes.append(Note(text=f"Both peaks include {extra} that the captured step does not have."))
    made = difference.section(found.difference, found.predicted, found.measured, notes, found.times)
    return replace(made, blocks=(*made.blocks, *_traffic(found)))


def _traffic(found: Compared) -> Iterator[AnyBlock]:
    """The copy engines, predicted and measured, a row for each of the two."""
    from tensortide.run.traffic import Traffic

    if found.traffic is None:
        return
    rows = [
        (name, which, both[name])
        for name in dict.fromkeys([*found.traffic[0], *found.traffic[1]])
        for which, both in zip(("predicted", "measured"), found.traffic, strict=True)
        if name in both
    ]
    engines = Column("engine", "Engine", "name", tuple(name for name, *_ in rows))
    which = Column("which", "", "text", tuple(which for _, which, _ in rows))
    figures = (engines, which, "moved_bytes", "busy_ns", "stall_ns", "hidden_share")
    remark = "of one step; hidden: no op waited meanwhile"
    yield table(Traffic, [one for *_, one in rows], *figures, key="transfers", title="Transfers", remark=remark)
    speeds = []
    for link in found.links:
        rates = (link.bytes_per_s, link.in_bytes_per_s or link.bytes_per_s)
        out, back = (f"{float(rate) / 1e9:.3g} GB/s" for rate in rates)
        speeds.append(f"{link.name} {out} out and {back} in, after {format_seconds(link.latency_ns / 1e9)}")
    text = f"Predicted at the speed of transfers alone: {', '.join(speeds)}. Beside ops, both share the memory."
    yield Note(text=text)


def of_usage(usage: Usage) -> Document:
    """Show what was done to stay within the budget, and the time that it took."""
    made = facts(
        *(usage, "peak_bytes", fact(usage, "plain_peak_bytes", "about"), "ops", "evictions", "recomputations"),
        fact(usage, "open_ns", "that the budget was open"),
        *("base_ns", "recomputation_ns", "search_ns"),
        fact(usage, "overhead_ns", "the program between ops, and bookkeeping"),
    )
    title = f"{format_bytes(usage.peak_bytes)} at most, {usage.evictions:,} evictions"
    why = [Note(text=text, kind="warning") for text in [usage.unfollowed] if text]
    return Section("usage", "Usage", blocks=(made, *why)).document(title)


def of_compiled_graph(found: CompiledGraph) -> Document:
    """Show it alone."""
    planned, ops = found.planned, len(found.graph)
    assert planned.plan is not None
    added = f"{format_seconds(((planned.step_ns or 0) - planned.base_ns) / 1e9)} added"
    share = "" if planned.extra_share is None else f" ({format_percent(planned.extra_share)})"
    text = f"{ops:,} ops, {format_bytes(found.peak_bytes)} of {format_bytes(planned.budget_bytes)}, {added}{share}."
    again = sum(isinstance(step, Compute) for step in planned.plan.lanes[0].steps) - ops
    made = facts(
        found,
        Fact("ops", "Ops", ops, "count", f"{again:,} run again"),
        fact(found, "planned.budget_bytes", label="Budget", data=False),
        "peak_bytes",
        fact(found, "given_bytes", "parameters, buffers and data, part of the peak"),
        fact(found, "held_bytes", "inputs included"),
        fact(found, "planned.base_ns", label="Step without a budget", data=False),
        fact(found, "planned.step_ns", label="Step by the plan", data=False),
    )
    section = Section("compiled_graph", "Compiled graph", blocks=(Note(text=text, kind="verdict"), made))
    return section.document("a graph of torch.compile")
