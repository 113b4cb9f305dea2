"""``tensortide count --symbols``: the counts as formulas."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tensortide.cli.source import CaptureOptions, option, progress, settings_of, step_of
from tensortide.errors import UnknownCost, WorkloadError
from tensortide.formulas import Symbolic, symbolic
from tensortide.formulas.formulas import save_formulas
from tensortide.recorder import resolver
from tensortide.recorder.target import Scalar, Workload
from tensortide.write import write_file

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document

ALL = "all"
"""In place of names: every hyperparameter that is an integer."""


@Parameter(name="*")
@dataclass(frozen=True)
class SymbolOptions:
    """Counts as formulas in hyperparameters."""

    symbols: Annotated[
        str, option("--symbols", "Hyperparameters that stay symbols: batch,seq,hidden. Or all (the integers).")
    ] = ""
    condition: Annotated[
        tuple[str, ...], option("--condition", 'What legal settings meet: "hidden % heads == 0".')
    ] = ()
    values: Annotated[
        tuple[str, ...], option("--values", "Legal values of one symbol: --values hidden=64,128,192.")
    ] = ()
    formulas: Annotated[Path | None, option("--formulas", "Write the formulas to a file that other verbs read.")] = None
    latex: Annotated[Path | None, option("--latex", "Write the totals as LaTeX.")] = None


def count_symbols(
    target: str, chosen: SymbolOptions, options: CaptureOptions, *, strict: bool, depth: int, top: int, quiet: bool
) -> Document:
    """Return the formulas of ``target``, and write the files of them that were asked for."""
    from tensortide.reports.sections.formulas import document

    if options.real or options.first_step:
        raise WorkloadError("--symbols does not go with --real or --first-step: formulas are of the steady step")
    workload = step_of(target, "--symbols")
    over, settings = names_of(chosen.symbols, workload.function), settings_of(workload, options)
    found = derived(workload, over, settings, chosen.condition, dict(map(_values, chosen.values)), quiet=quiet)
    if strict:
        _refuse(found)
    if chosen.formulas is not None:
        save_formulas(found.formulas, chosen.formulas)
    if chosen.latex is not None:
        write_file(chosen.latex, found.formulas.latex().encode())
    return document(found, depth=depth, top=top)


def derived(
    workload: Workload,
    over: Sequence[str],
    settings: Mapping[str, Scalar],
    where: Sequence[str],
    values: Mapping[str, Sequence[int]] | None = None,
    *,
    quiet: bool,
) -> Symbolic:
    """The formulas of a workload, with progress unless ``quiet``."""
    with progress(quiet) as say:
        return symbolic(
            workload.function,
            over=over,
            hyperparameters=settings,
            where=where,
            values=values,
            name=workload.name,
            resolver=resolver,
            progress=say,
        )


def names_of(text: str, workload: Callable[..., Any]) -> list[str]:
    """The hyperparameters that ``text`` names, or all that are integers. Raises WorkloadError if there is none."""
    if text.strip() != ALL:
        return [name for name in re.split(r"[,\s]+", text) if name]
    names = [name for name, p in inspect.signature(workload).parameters.items() if type(p.default) is int]
    if not names:
        raise WorkloadError("the workload has no hyperparameter that is an integer")
    return names


def _values(text: str) -> tuple[str, list[int]]:
    name, _, values = text.partition("=")
    try:
        return name.strip(), [int(value) for value in values.split(",")]
    except ValueError:
        raise WorkloadError(f"--values takes name=1,2,3, not {text!r}") from None


def _refuse(found: Symbolic) -> None:
    """Under ``--strict`` whatever has no formula or no rule is an error."""
    missing = [f"  {remark}" for remark in found.numeric]
    missing += [f"  {name} x{count} has no cost rule" for name, count in found.unknown.items()]
    missing += [f"  {name} is held: {reason}" for name, reason in found.held.items()]
    if missing:
        raise UnknownCost("not everything has a formula:\n" + "\n".join(missing))
