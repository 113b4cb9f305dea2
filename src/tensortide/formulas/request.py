"""The target of every question about formulas: a file of them, a graph with symbols, or a workload, with its symbols
and its legal settings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from tensortide.cost import count
from tensortide.cost.count import MISSING
from tensortide.errors import ExpressionError, RequestError, UnknownCost
from tensortide.expr import conditions, expr_of
from tensortide.expr.floors import given_whole
from tensortide.formulas.confirm import confirm
from tensortide.formulas.derive import LIMIT_S, symbolic
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.formulas_file import is_formulas_file, load_formulas, save_formulas
from tensortide.formulas.measure import counted_totals
from tensortide.formulas.region import divisible, quotients, simplified, sizes
from tensortide.formulas.result import Symbolic
from tensortide.formulas.solution import Solution
from tensortide.graph.model import Graph
from tensortide.graph.sizes import known_sizes
from tensortide.graph.trips import guess_text, guessed_trips
from tensortide.importers.door import File, resolve
from tensortide.importers.symbols import require_symbols
from tensortide.memory import footprint_bytes
from tensortide.progress import Say, silent
from tensortide.recorder import resolver
from tensortide.recorder.script_command import Script
from tensortide.recorder.target import Workload, find_workload, parse_settings
from tensortide.request import Opt, Request
from tensortide.targets.assumptions import assumed
from tensortide.targets.reading import ReadingRequest
from tensortide.targets.requests import Assume, Settings, described, refuse
from tensortide.write import write_file

FORMULAS = "A file of formulas, a .meta graph, or a workload: file.py:function or an example."
ALL = "all"
"""In place of names: every hyperparameter that is an integer."""
WORKLOAD = ("workload",)

Confirm: TypeAlias = Callable[[Solution], Solution]


class Legal(NamedTuple):
    """A symbol, and its legal values."""

    symbol: str
    values: tuple[int, ...]


def _legal(text: str) -> Legal:
    name, _, values = text.partition("=")
    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", values, re.ASCII):
        raise RequestError(f"--values takes name=1,2,3, not {text!r}")
    return Legal(name.strip(), tuple(map(int, values.split(","))))


@dataclass(frozen=True, kw_only=True)
class DomainRequest(Request):
    """The symbols of a workload's formulas, and its legal settings."""

    GROUP = "Formulas of a workload"

    symbols: Annotated[
        str,
        Opt(
            "Symbols to keep, others are numbers: hyperparameters of a workload (batch,seq), sizes of a file (b,s), or "
            "all (of a workload: the integers).",
            of=("workload", "file"),
            common=True,
            value="NAMES",
        ),
    ] = ""
    condition: Annotated[
        tuple[str, ...],
        Opt('A condition that settings must meet: "hidden % heads == 0".', of=WORKLOAD, value="CONDITION"),
    ] = ()
    values: Annotated[
        tuple[Legal, ...],
        Opt(
            "Legal values of one symbol: --values hidden=64,128,192.",
            read=_legal,
            of=WORKLOAD,
            value="NAME=VALUES",
        ),
    ] = ()
    limit: Annotated[
        float | None,
        Opt(
            f"Seconds to look for formulas; what is not found by then is held at its value (default: {LIMIT_S:g}; none "
            "with --work-limit).",
            least=0,
            of=WORKLOAD,
            value="SECONDS",
        ),
    ] = None
    work_limit: Annotated[
        int | None,
        Opt("The same in captures: the formulas are the same on any machine, however loaded.", least=0, of=WORKLOAD),
    ] = None

    def of_file(self, path: Path, known: Iterable[str]) -> set[str]:
        """The symbols of a file to keep: all of the ``known`` unless some are named. Raises WorkloadError if it has not
        these, or none."""
        named = [*known] if self.symbols.strip() in ("", ALL) else _named(self.symbols)
        require_symbols(path, named or [ALL], known)
        return {*named}

    def derived(self, workload: Workload, asked: Request, needed: Iterable[str] = (), say: Say = silent) -> Symbolic:
        """The formulas of a workload in these symbols and those ``needed``, as ``--set``, ``--assume`` and ``--strict``
        are ``asked``.

        Raises:
            UnknownCost: ``--strict``, and something has no formula or no rule.
        """
        found = symbolic(
            workload.function,
            name=workload.name,
            hyperparameters=parse_settings(asked.get("set"), workload.function, workload.name),
            over=list(dict.fromkeys([*_names(self.symbols, workload.function), *needed])),
            where=self.condition,
            values=dict(self.values),
            assume=assumed(asked.get("assume"), expressions=True),
            limit=self.limit,
            work_limit=self.work_limit,
            resolver=resolver,
            progress=say,
        )
        if asked.get("strict"):
            _require_formulas(found)
        return found


@dataclass(frozen=True, kw_only=True)
class FormulaFiles(Request):
    """Files of formulas."""

    GROUP = "Output"

    formulas: Annotated[
        Path | None, Opt("Write the formulas to a file that other verbs read.", writes=True, of=WORKLOAD, common=True)
    ] = None
    latex: Annotated[Path | None, Opt("Write the totals as LaTeX.", writes=True, of=WORKLOAD)] = None

    def write(self, found: Formulas) -> list[Path]:
        """Write the files that are asked for, and return their paths."""
        if self.formulas is not None:
            save_formulas(found, self.formulas)
        if self.latex is not None:
            write_file(self.latex, found.latex().encode())
        return [path for path in (self.formulas, self.latex) if path is not None]


@dataclass(frozen=True, kw_only=True)
class FormulaRequest(Request):
    """The settings of a step, and the symbols of its formulas."""

    GROUP = "What counts as an error"

    set: Settings = ()
    domain: DomainRequest = DomainRequest()
    assume: Assume = ()
    strict: Annotated[
        bool,
        Opt(
            "Exit with status 3 if anything has no formula or no cost rule, is extrapolated, or cannot be checked.",
            common=True,
        ),
    ] = False
    reading: ReadingRequest = dataclasses.field(default_factory=ReadingRequest)

    def formulas_of(self, target: str, needed: Iterable[str] = (), say: Say = silent) -> tuple[Formulas, Confirm]:
        """The formulas of ``target`` in the symbols ``needed``, and a check of solutions: of a workload by captures, of
        a file by none, which they say."""
        workload = find_workload(target)
        if workload is None and is_formulas_file(target):
            refuse(self, f"{target} is a file of formulas", "file", "step")
            costs = load_formulas(target).at(**self.bindings())
            self.require(f"{name} lacks {part.unexplained}" for name, part in costs.partial.items())
            return costs, _unconfirmed("a file of formulas")
        if workload is None and target.endswith(".json") and Path(target).is_file():
            made = "tensortide formulas show WORKLOAD --formulas FILE"
            raise ExpressionError(f"{target} is no file of formulas: {made} writes one")
        found = workload or resolve(target)
        if isinstance(found, File):
            what, *kinds = described(found)
            refuse(self, f"{what}, and its symbols are found in it", *kinds)
            step = found.read(None, durations=False, **self.reading.values())
            symbols = step.symbols or known_sizes(step.graph)
            costs = formulas_of_graph(step.graph, symbols, found.path.name).at(**self.bindings())
            kept = {*needed, *self.domain.of_file(found.path, symbols)}
            return costs.along({n: v for n, v in costs.defaults.items() if n not in kept}), _unconfirmed("a graph")
        if isinstance(found, Script):
            raise RequestError(f"{found}: one step of it has no formulas. Write a workload with hyperparameters")
        refuse(self, *described(found))
        batch = ["batch"] if "batch" in inspect.signature(found.function).parameters else []
        derived = self.domain.derived(found, self, [*needed, *batch], say)
        assume = assumed(self.assume, expressions=True)
        check = partial(confirm, found=derived, workload=found.function, assume=assume, resolver=resolver)
        return derived.formulas, check

    def refuse_set(self, target: str, names: Iterable[str], what: str) -> None:
        """Raise RequestError if ``--set`` gives a symbol that is varied; of a workload, it moves the samples."""
        given = {setting.partition("=")[0].strip() for setting in self.set}
        if find_workload(target) is None and (both := sorted(given & {*names})):
            raise RequestError(f"{', '.join(both)} cannot be {what} and set at once")

    def require(self, doubts: Iterable[str]) -> None:
        """Raise UnknownCost, as ``strict`` asks, if there are doubts."""
        if self.strict and (found := list(dict.fromkeys(doubts))):
            raise UnknownCost("\n  ".join(["--strict: not everything is known:", *found]))

    def bindings(self) -> dict[str, int]:
        """The values of ``--set``, which are whole numbers."""
        values: dict[str, int] = {}
        for setting in self.set:
            name, equals, value = (part.strip() for part in setting.partition("="))
            if not equals or not re.fullmatch(r"\d+", value):
                raise RequestError(f"--set takes key=value with a whole number, not {setting!r}")
            values[name] = int(value)
        return values


def _named(text: str) -> list[str]:
    return [name for name in re.split(r"[,\s]+", text) if name]


def _names(text: str, workload: Callable[..., Any]) -> list[str]:
    """The hyperparameters that ``text`` names, or all that are integers. Raises RequestError if there is none."""
    if text.strip() != ALL:
        return _named(text)
    names = [name for name, p in inspect.signature(workload).parameters.items() if type(p.default) is int]
    if not names:
        raise RequestError("the workload has no hyperparameter that is an integer")
    return names


def _unconfirmed(what: str) -> Confirm:
    """A check of solutions that have no workload to capture."""
    return partial(replace, unchecked=f"{what} has no step to capture; solve for the workload itself")


def _require_formulas(found: Symbolic) -> None:
    """Raise UnknownCost if anything has no formula or no rule."""
    missing = [f"  {remark}" for remark in found.numeric]
    missing += [f"  {name}: not {part.unexplained}" for name, part in found.formulas.partial.items()]
    missing += [f"  {name} x{count} has no cost rule" for name, count in found.unknown.items()]
    missing += [f"  {name} is held: {reason}" for name, reason in found.held.items()]
    if missing:
        raise UnknownCost("\n".join(["not everything has a formula:", *missing, *([MISSING] if found.unknown else [])]))


# -- graphs with expressions ------------------------------------------------------------------------
# Totals of a graph whose sizes are expressions, by the cost rules alone.


def formulas_of_graph(graph: Graph, defaults: Mapping[str, int], workload: str = "") -> Formulas:
    """Return the totals of ``graph``, by the default rules; ``defaults`` are values of the symbols in its sizes.

    Raises ExpressionError if it has none, and for ops without a cost rule: a total that lacks them is no total.
    """
    known = sizes(graph)
    whole = quotients(known)
    with conditions() as asked, given_whole(whole):
        counted = count(graph)
        totals = {name: expr_of(total) for name, total in counted_totals(counted, footprint_bytes(graph)).items()}
    if not counted.coverage.complete:
        missing = ", ".join(str(group) for group in counted.coverage.missing)
        raise ExpressionError(f"{workload or 'the graph'} has ops without a cost rule: {missing}")
    used = sorted({name for expr in totals.values() for name in expr.symbols})
    if not used:
        raise ExpressionError(f"the sizes of {workload or 'the graph'} are numbers: there is nothing to vary")
    lowest = dict.fromkeys(used, 1)
    region = (*divisible(whole), *simplified(asked, lowest, known, [dict(defaults)]))
    kept = tuple(c for c in region if c.expr.symbols <= set(used))
    return Formulas(
        totals=totals,
        defaults={name: defaults[name] for name in used},
        region=kept,
        workload=workload,
        assumptions=(*graph.meta.assumptions, *([guess_text(guessed)] if (guessed := guessed_trips(graph)) else ())),
    )
