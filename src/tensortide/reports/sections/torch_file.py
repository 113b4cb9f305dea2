"""Section ``torch_file``: what a written file does to the model, what its step takes, and what was lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table
from tensortide.reports.names import pattern, shared
from tensortide.studies.torch_file.choice import Choice
from tensortide.studies.torch_file.result import Form, TorchFile
from tensortide.units import format_bytes, format_percent, format_seconds

__all__ = ["document", "section"]

_SHOWN = 3
"""Reasons that are shown, of those why modules cannot be checkpointed."""


def document(made: TorchFile) -> Document:
    """Show it alone."""
    return section(made).document(f"{made.name}.py")


def section(made: TorchFile) -> Section:
    """Make the section."""
    return Section("torch_file", "File for PyTorch", blocks=tuple(_blocks(made)))


def _blocks(made: TorchFile) -> Iterator[AnyBlock]:
    budget = format_bytes(made.budget_bytes)
    if made.needless:
        text = f"The step fits {budget} as it is ({format_bytes(made.recorded_bytes)}): there is nothing to change."
        yield Note(text=f"{text} No file is written.", kind="verdict")
        return
    best = made.best
    if best is None:
        least = ". ".join(_least(form) for form in made.forms)
        yield Note(text=f"No file is written, for none fits {budget}. {least}.", kind="failure")
    else:
        yield Note(text=_verdict(best, made), kind="verdict")
        for root in best.choice.used_roots:
            model = root.rpartition(".")[2] or "model"
            call = f"apply({model}, {root!r})" if root else f"apply({model})"
            yield Note(text=f"Before the first step: from {made.name} import apply; {call}", kind="advice")
    yield _forms(made)
    yield from _notes(made)


def _least(form: Form) -> str:
    if form.peak_bytes is None:
        return f"{form.name.capitalize()}: {form.reason}"
    return f"The least found with {form.name} is {format_bytes(form.peak_bytes)}"


def _verdict(best: Form, made: TorchFile) -> str:
    planned = made.planned
    text = f"{made.name}.py: {_figures(best.time_ns, best.peak_bytes)}"
    if best.time_ns is not None and planned.bound_ns:
        text += f", gap {format_percent(best.time_ns / planned.bound_ns - 1)}"
    if planned.time_ns is None:
        return f"{text}."
    return f"{text}; the plan: {_figures(planned.time_ns, planned.peak_bytes)}."


def _figures(time_ns: int | None, peak_bytes: int | None) -> str:
    return f"{format_seconds((time_ns or 0) / 1e9)}, {format_bytes(peak_bytes or 0)}"


def _forms(made: TorchFile) -> Table:
    forms, bound = made.forms, made.planned.bound_ns
    return Table(
        key="torch_forms",
        title="Forms of the file",
        columns=(
            Column("form", "Form", "text", tuple(form.name for form in forms)),
            Column("time", "Step", "ns", tuple(form.time_ns for form in forms)),
            Column("peak", "Peak", "bytes", tuple(form.peak_bytes for form in forms)),
            Column(
                "gap",
                "Gap",
                "share",
                tuple(form.time_ns / bound - 1 if form.time_ns is not None and bound else None for form in forms),
            ),
            Column("fits", "Fits", "text", tuple("yes" if form.fits else "no" for form in forms)),
            Column(
                "changes", "What it does", "text", tuple(form.reason or does(form.choice) for form in forms), fold=True
            ),
        ),
    )


def does(choice: Choice) -> str:
    """Return what a file does, in a line."""
    parts = []
    if choice.checkpoints:
        parts.append(f"checkpoint {_grouped(choice.checkpoints)}")
    kept = sum(len(each.kept) for each in choice.checkpoints.values())
    if kept:
        parts.append(f"keep results of {_count(kept, 'op')} in them")
    if choice.moved:
        nbytes = sum(each.nbytes for each in choice.moved)
        parts.append(f"move {_count(len(choice.moved), 'saved tensor')} ({format_bytes(nbytes)}) to host memory")
    return ", ".join(parts)


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _grouped(paths: Iterable[str]) -> str:
    names = sorted(paths, key=lambda path: (pattern(path), path))
    groups = [[*group] for _, group in groupby(names, key=pattern)]
    return ", ".join(
        f"{shared(group)} x{len(group)}" if len(group) > 1 else group[0] or "the model" for group in groups
    )


def _notes(made: TorchFile) -> Iterator[Note]:
    best = made.best
    if best is not None and any(each.updated for each in best.choice.checkpoints.values()):
        yield Note(text="Recomputation updates copies of running statistics: they are updated once in a step.")
    if best is not None and best.choice.moved:
        yield Note(text="Device memory is without the pool in host memory. Copies on a CPU are synchronous.")
    if lost := _lost(made):
        yield Note(text=lost)
    if made.refused:
        reasons = [f"{each.path or 'the model'}: {each.reason}" for each in made.refused]
        more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        yield Note(text=f"Not checkpointed: {'; '.join(reasons[:_SHOWN])}{more}.")


def _lost(made: TorchFile) -> str:
    """Return why files that move tensors are slower than the plan, or do not fit; empty if they are not."""
    form = next((form for form in made.forms if form.name == "offload"), None)
    planned = made.planned.time_ns
    if form is None or planned is None or (form.fits and (form.time_ns or 0) <= planned):
        return ""
    loss = "is slower than the plan" if form.fits else "does not fit"
    if made.unmoved:
        kinds = ", ".join(f"{kind} ({format_bytes(nbytes)})" for kind, nbytes in made.unmoved.items())
        return f"Offload {loss}: the plan also moves what hooks of saved tensors cannot, {kinds}."
    return f"Offload {loss}: hooks begin transfers only where the backward pass uses a saved tensor, a plan at any op."
