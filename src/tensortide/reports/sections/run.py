"""Section ``run``: steps that really ran under a memory budget, beside ordinary ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table, data_facts
from tensortide.reports.pictures import Axis, Points, Scatter
from tensortide.reports.sections import difference
from tensortide.units import format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from tensortide.run.least import Least
    from tensortide.run.measure import Compared, Measured
    from tensortide.run.results import Agreement

__all__ = ["agreement", "agreement_facts", "document", "least_document", "section", "step_times"]

ENDED = {"oom": "runs out of memory", "thrash": "exceeds its limit of recomputation"}


def document(result: Measured, compared: Compared | None) -> Document:
    """Show ``result``, and beside it what the simulator predicts if it was ``compared``."""
    sections = [section(result)]
    if compared is not None:
        sections.append(_compared(compared))
    title = f"{result.target} under {format_bytes(result.budget_bytes)}, {result.policy}"
    return Document(title=title, sections=tuple(sections))


def least_document(found: Least) -> Document:
    """Show the least budget that was ``found``, and the steps under it."""
    result = found.measured
    title = f"The least budget of {result.target}: {format_bytes(result.budget_bytes)}, {result.policy}"
    return Document(title=title, sections=(_least(found), section(result)))


def _least(found: Least) -> Section:
    result = found.measured
    given, works = found.measured.before_bytes, result.budget_bytes
    share = f"{works / found.plain_bytes:.2f} of the peak without evictions" if found.plain_bytes else ""
    facts = [
        Fact("least", "Least budget", works, "bytes", share),
        Fact("least_given", "resident before", given, "bytes", "parameters, state, inputs", level=1),
        Fact("least_rest", "the step itself", works - given, "bytes", level=1),
        Fact("failed", "Too small", found.failed_bytes, "bytes", found.failure),
        Fact("simulated", "Least by the simulator", found.simulated_bytes, "bytes"),
        Fact("fast", "Least for a fast step", found.fast_bytes, "bytes", "recomputes no longer, simulated"),
        Fact("plain_peak", "Peak without evictions", found.plain_bytes, "bytes"),
        Fact("op_bytes", "Most demanding op", found.op_bytes, "bytes", f"{found.op}, with what always stays"),
        *data_facts("text", varies=found.varies),
    ]
    blocks: list[AnyBlock] = [Facts(rows=tuple(facts))]
    if found.varies:
        text = f"The step differs from call to call: {found.varies}. Another call may need more."
        blocks.append(Note(text=text, kind="warning"))
    return Section("least", "The least budget", blocks=tuple(blocks))


def section(result: Measured) -> Section:
    """The section of ``result``: medians over its steps."""
    blocks: list[AnyBlock] = [Facts(rows=tuple(_facts(result)))]
    if result.agreement is not None:
        blocks.append(agreement(result.agreement))
    if result.check:
        which = "Every storage" if result.check == 1 else f"One storage in {result.check}"
        blocks.append(
            Note(text=f"{which} was checked: no unseen write, and every op repeats. Times include the checks.")
        )
    blocks.append(step_times({"under the budget": result.times_ns, "ordinary": result.plain_times_ns}))
    return Section("run", "Steps under the budget", blocks=tuple(blocks))


def step_times(times_ns: Mapping[str, Sequence[int]]) -> Scatter:
    """Draw the time of each measured step, a line for each kind of steps that there were."""
    return Scatter(
        key="step_times",
        title="Time of each step",
        x=Axis("step", "count"),
        y=Axis("time", "ns"),
        points=tuple(
            Points(kind, tuple(range(1, len(times) + 1)), tuple(times), "line")
            for kind, times in times_ns.items()
            if times
        ),
    )


def agreement(found: Agreement) -> Note:
    """Say whether the results of both kinds of steps are equal, and what was compared."""
    results = found.results
    left_out = f"; {results.left_out} more cannot be read" if results.left_out else ""
    compared = (
        f"after {found.steps} steps of each kind from the same start: what the last one returned, {results.tensors} "
        f"tensors that the step reaches ({format_bytes(results.nbytes)}: parameters, gradients, optimizer state, inputs"
        f"{left_out}), random generators"
    )
    if found.equal:
        return Note(text=f"Results are those of ordinary steps, bit for bit, {compared}.", kind="verdict")
    if found.equal is None:
        return Note(text=f"Results were not compared with ordinary steps: {found.reason}.", kind="warning")
    advice = "Ordinary steps repeat. --check finds the op; on a GPU its kernels may not be deterministic"
    text = f"Results differ from those of ordinary steps, first in {found.first}, {compared}. {advice}."
    return Note(text=text, kind="failure")


RESULTS = {True: "equal", False: "differ", None: "not compared"}


def _share(result: Measured) -> str:
    """The part that the budget is of the peak, and, asked for as such, of the device's memory."""
    asked = f"{result.asked} of the memory of {result.device}" if result.asked.endswith("%") else ""
    peak = result.step.plain_peak_bytes
    return ", ".join(filter(None, (asked, f"{format_percent(result.budget_bytes, peak)} of the peak" if peak else "")))


def _facts(result: Measured) -> Iterator[Fact]:
    step = result.step
    slowdown = "" if result.slowdown is None else f"{result.slowdown:.2f}x the ordinary step"
    yield Fact("budget", "Budget", result.budget_bytes, "bytes", _share(result))
    unlimited = f"{format_bytes(step.plain_peak_bytes)} without evictions"
    yield Fact("peak", "Peak", step.peak_bytes, "bytes", unlimited)
    yield Fact("before", "Resident before", result.before_bytes, "bytes")
    yield from data_facts("text", policy=result.policy)
    yield from data_facts("factor", slowdown=result.slowdown)
    if result.plain_ns is not None:
        yield Fact("plain", "Ordinary step", result.plain_ns, "ns")
    yield Fact("step", "Step under the budget", step.open_ns, "ns", slowdown)
    yield Fact("base", "its own ops", step.base_ns, "ns", f"{step.ops} ops", level=1)
    yield Fact("recompute", "recomputed ops", step.recompute_ns, "ns", f"{step.recomputations} ops", level=1)
    yield Fact("arguments", "assembling their arguments", step.arguments_ns, "ns", level=1)
    yield Fact("search", "making room", step.search_ns, "ns", f"{step.evictions} evictions", level=1)
    yield Fact("overhead", "everything else", step.overhead_ns, "ns", level=1)
    yield from data_facts("count", ops=step.ops, recomputations=step.recomputations, evictions=step.evictions)
    if result.agreement is not None:
        yield from agreement_facts(result.agreement)
    if step.followed_steps or step.left_steps:
        steps = step.followed_steps + step.left_steps
        yield Fact("followed_steps", "Steps by plan or record", step.followed_steps, "count", f"of {steps}")
        yield Fact("left_steps", "Steps that departed", step.left_steps, "count", data=True)


def agreement_facts(found: Agreement) -> Iterator[Fact]:
    """Return what ``agreement`` says, as data."""
    yield from data_facts("text", results=RESULTS[found.equal], first_difference=found.first, reason=found.reason)
    yield from data_facts("count", compared_steps=found.steps, compared_tensors=found.results.tensors)
    yield from data_facts("bytes", compared=found.results.nbytes)


def _compared(found: Compared) -> Section:
    """The section of what was predicted, with notes on how far the two compare."""
    notes = []
    if found.status != "ok":
        notes.append(Note(text=f"The simulator {ENDED[found.status]}: predictions are up to there.", kind="warning"))
    if found.elsewhere_bytes:
        extra = format_bytes(found.elsewhere_bytes)
        notes.append(Note(text=f"Both peaks include {extra} that the captured step does not have."))
    made = difference.section(found.difference, found.predicted, found.measured, notes, found.times)
    return made if found.traffic is None else replace(made, blocks=(*made.blocks, *_traffic(found)))


def _traffic(found: Compared) -> Iterator[AnyBlock]:
    """The copy engines, predicted and measured, a row for each of the two."""
    assert found.traffic is not None
    pairs = [
        (name, which, both[name])
        for name in dict.fromkeys([*found.traffic[0], *found.traffic[1]])
        for which, both in zip(("predicted", "measured"), found.traffic, strict=True)
        if name in both
    ]
    columns = (
        Column("engine", "Engine", "name", tuple(name for name, _, _ in pairs)),
        Column("which", "", "text", tuple(which for _, which, _ in pairs)),
        Column("moved", "Moved", "bytes", tuple(one.moved_bytes for _, _, one in pairs)),
        Column("busy", "Busy", "ns", tuple(one.busy_ns for _, _, one in pairs)),
        Column("stalls", "Ops waited", "ns", tuple(one.stall_ns for _, _, one in pairs)),
        Column("hidden", "Hidden", "share", tuple(one.hidden for _, _, one in pairs)),
    )
    yield Table(
        key="transfers", title="Transfers", remark="of one step; hidden: no op waited meanwhile", columns=columns
    )
    speeds = ", ".join(
        f"{link.name} {_rate(link.bytes_per_s)} out and {_rate(link.in_bytes_per_s or link.bytes_per_s)} in, after "
        f"{format_seconds(link.latency_ns / 1e9)}"
        for link in found.links
    )
    yield Note(text=f"Predicted at the speed of transfers alone: {speeds}. Beside ops, both share the memory.")


def _rate(bytes_per_s: Fraction) -> str:
    return f"{float(bytes_per_s) / 1e9:.3g} GB/s"
