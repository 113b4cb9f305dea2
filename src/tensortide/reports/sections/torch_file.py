"""Section ``torch_file``: what a written file does to the model, what its step takes, and what was lost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tensortide.graph.module_paths import as_one, pattern
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section
from tensortide.reports.of_records import table
from tensortide.studies.torch_file.choice import Choice
from tensortide.studies.torch_file.result import Form, TorchFile
from tensortide.units import format_bytes, format_percent, format_seconds

_SHOWN = 3
"""Reasons that are shown, of those why modules cannot be checkpointed."""


def document(made: TorchFile) -> Document:
    """Show it alone."""
    return section(made).document(f"{made.name}.py")


def section(made: TorchFile) -> Section:
    """Make the section."""
    return Section("torch_file", "File for PyTorch", blocks=tuple(_blocks(made)))


def _blocks(made: TorchFile) -> Iterator[AnyBlock]:
    budget, best = format_bytes(made.budget_bytes), made.best
    if made.needless:
        text = f"The step fits {budget} as it is ({format_bytes(made.recorded_bytes)}): there is nothing to change."
        yield Note(text=f"{text} No file is written.", kind="verdict")
        return
    if best is None:
        least = (
            f"{form.name.capitalize()}: {form.reason}"
            if form.peak_bytes is None
            else f"The least found with {form.name} is {format_bytes(form.peak_bytes)}"
            for form in made.forms
        )
        yield Note(text=f"No file is written, for none fits {budget}. {'. '.join(least)}.", kind="failure")
    else:
        gap = "" if best.gap_share is None else f", gap {format_percent(best.gap_share)}"
        own, plan = (
            f"{format_seconds((one.step_ns or 0) / 1e9)}, {format_bytes(one.peak_bytes or 0)}"
            for one in (best, made.planned)
        )
        planned = "" if made.planned.step_ns is None else f"; the plan: {plan}"
        yield Note(text=f"{made.name}.py: {own}{gap}{planned}.", kind="verdict")
        for root in best.choice.used_roots:
            model = root.rpartition(".")[2] or "model"
            call = f"apply({model}, {root!r})" if root else f"apply({model})"
            yield Note(text=f"Before the first step: from {made.name} import apply; {call}", kind="advice")
    fits = Column("fits", "Fits", "text", tuple("yes" if form.fits else "no" for form in made.forms))
    does = Column("changes", "What it does", "text", tuple(f.reason or _does(f.choice) for f in made.forms), fold=True)
    figures = ("name", "step_ns", "peak_bytes", "gap_share", fits, does)
    yield table(Form, made.forms, *figures, key="torch_forms", title="Forms of the file")
    yield from (Note(text=text) for text in _remarks(made))


def _does(choice: Choice) -> str:
    """Return what a file does, in a line."""
    parts = []
    if paths := sorted(choice.checkpoints, key=lambda path: (pattern(path), path)):
        groups = [[*group] for _, group in groupby(paths, key=pattern)]
        names = (f"{as_one(one)} x{len(one)}" if len(one) > 1 else one[0] or "the model" for one in groups)
        parts.append(f"checkpoint {', '.join(names)}")
    if kept := sum(len(each.kept) for each in choice.checkpoints.values()):
        parts.append(f"keep results of {kept:,} op{'s' * (kept != 1)} in them")
    if moved := len(choice.moved):
        nbytes = format_bytes(sum(each.nbytes for each in choice.moved))
        parts.append(f"move {moved:,} saved tensor{'s' * (moved != 1)} ({nbytes}) to host memory")
    return ", ".join(parts)


def _remarks(made: TorchFile) -> Iterator[str]:
    if made.best is not None:
        if any(each.updated for each in made.best.choice.checkpoints.values()):
            yield "Recomputation updates copies of running statistics: they are updated once in a step."
        if made.best.choice.moved:
            yield "Device memory is without the pool in host memory. Copies on a CPU are synchronous."
    form, planned_ns = next((one for one in made.forms if one.name == "offload"), None), made.planned.step_ns
    if form is not None and planned_ns is not None and not (form.fits and (form.step_ns or 0) <= planned_ns):
        kinds = ", ".join(f"{kind} ({format_bytes(nbytes)})" for kind, nbytes in made.unmoved.items())
        only = "hooks begin transfers only where the backward pass uses a saved tensor, a plan at any op"
        why = f"the plan also moves what hooks of saved tensors cannot, {kinds}" if kinds else only
        yield f"Offload {'is slower than the plan' if form.fits else 'does not fit'}: {why}."
    if made.refused:
        reasons = [f"{each.path or 'the model'}: {each.reason}" for each in made.refused]
        more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        yield f"Not checkpointed: {'; '.join(reasons[:_SHOWN])}{more}."
