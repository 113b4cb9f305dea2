"""Options of formulas in hyperparameters, and the formulas that they ask for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from tensortide.cli.numbers import Real
from tensortide.cli.source import (
    CaptureOptions,
    assumed,
    option,
    settings_of,
    with_progress,
    workload_of,
)
from tensortide.errors import UnknownCost, WorkloadError
from tensortide.formulas import Symbolic, symbolic
from tensortide.formulas.derive import LIMIT_S
from tensortide.formulas.formulas_file import save_formulas
from tensortide.recorder import resolver
from tensortide.write import write_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensortide.recorder.target import Scalar, Workload
    from tensortide.reports.blocks import Document

ALL = "all"
"""In place of names: every hyperparameter that is an integer."""


@Parameter(name="*")
@dataclass(frozen=True)
class DomainOptions:
    """The symbols of a workload's formulas, and its legal settings."""

    symbols: Annotated[
        str,
        option(
            "--symbols", "Hyperparameters of a workload that stay symbols: batch,seq,hidden. Or all (the integers)."
        ),
    ] = ""
    condition: Annotated[
        tuple[str, ...], option("--condition", 'A condition that settings must meet: "hidden % heads == 0".')
    ] = ()
    values: Annotated[
        tuple[str, ...], option("--values", "Legal values of one symbol: --values hidden=64,128,192.")
    ] = ()
    limit: Annotated[
        float | None,
        option(
            "--limit",
            f"Seconds to look for formulas; what is not found by then is held at its value (default: {LIMIT_S:g}; none "
            "with --work-limit).",
        ),
        Parameter(validator=Real(least=0)),
    ] = None
    work_limit: Annotated[
        int | None,
        option("--work-limit", "The same in captures: the formulas are the same on any machine, however loaded."),
        Parameter(validator=validators.Number(gte=0)),
    ] = None

    def derive(
        self,
        workload: Workload,
        settings: Mapping[str, Scalar],
        needed: Iterable[str] = (),
        *,
        assume: tuple[str, ...] = (),
        quiet: bool,
        strict: bool,
    ) -> Symbolic:
        """The formulas of a workload in the symbols that were asked for, and those that are ``needed``.

        Raises UnknownCost, as ``strict`` asks, if anything has no formula or no rule.
        """
        found = with_progress(
            symbolic,
            workload,
            settings,
            quiet=quiet,
            resolver=resolver,
            over=list(dict.fromkeys([*names_of(self.symbols, workload.function), *needed])),
            where=self.condition,
            values=dict(map(_values, self.values)),
            assume=assumed(assume, expressions=True),
            limit=self.limit,
            work_limit=self.work_limit,
        )
        if strict:
            _refuse(found)
        return found


@Parameter(name="*")
@dataclass(frozen=True)
class SymbolOptions(DomainOptions):
    """Counts as formulas in hyperparameters, and files of these."""

    formulas: Annotated[Path | None, option("--formulas", "Write the formulas to a file that other verbs read.")] = None
    latex: Annotated[Path | None, option("--latex", "Write the totals as LaTeX.")] = None


def count_symbols(
    target: str, chosen: SymbolOptions, options: CaptureOptions, *, strict: bool, depth: int, top: int, quiet: bool
) -> Document:
    """Return the formulas of ``target``, and write the files of them that were asked for."""
    from tensortide.reports.sections.formulas import document

    if options.device is not None or options.machine is not None or options.ranks is not None:
        raise WorkloadError(
            "--symbols does not go with --device, --machine or --ranks: formulas are of the step on one CPU"
        )
    if options.real or options.first_step or options.compiled:
        raise WorkloadError(
            "--symbols does not go with --real, --first-step or --compiled: formulas are of the steady step"
        )
    workload = workload_of(target, "--symbols")
    settings = settings_of(workload, options)
    found = chosen.derive(workload, settings, assume=options.assume, quiet=quiet, strict=strict)
    if chosen.formulas is not None:
        save_formulas(found.formulas, chosen.formulas)
    if chosen.latex is not None:
        write_file(chosen.latex, found.formulas.latex().encode())
    return document(found, depth=depth, top=top)


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
    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", values, re.ASCII):
        raise WorkloadError(f"--values takes name=1,2,3, not {text!r}")
    return name.strip(), [int(value) for value in values.split(",")]


def _refuse(found: Symbolic) -> None:
    """Raise UnknownCost if anything has no formula or no rule."""
    from tensortide.cost.count import MISSING

    missing = [f"  {remark}" for remark in found.numeric]
    missing += [f"  {name}: not {part.unexplained}" for name, part in found.formulas.partial.items()]
    missing += [f"  {name} x{count} has no cost rule" for name, count in found.unknown.items()]
    missing += [f"  {name} is held: {reason}" for name, reason in found.held.items()]
    if missing:
        raise UnknownCost("\n".join(["not everything has a formula:", *missing, *([MISSING] if found.unknown else [])]))
