"""``tensortide formulas``: costs as formulas, and the questions they answer; its options."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import App, Parameter
from msgspec.structs import replace

from tensortide.cli.numbers import Real
from tensortide.cli.reading_options import ReadingOptions
from tensortide.cli.show import Files
from tensortide.cli.show import show as show_document
from tensortide.cli.source import (
    ASSUME,
    CaptureOptions,
    Depth,
    OutputOptions,
    Top,
    assumed,
    option,
    progress,
)
from tensortide.cli.symbols import ALL, DomainOptions, SymbolOptions, count_symbols
from tensortide.cli.workers import WorkerOptions
from tensortide.errors import ExpressionError, UnknownCost, WorkloadError
from tensortide.expr import Expr, parse
from tensortide.formulas import Solution, confirm
from tensortide.formulas.asymptotics import asymptotics
from tensortide.formulas.formulas import Formulas, told
from tensortide.formulas.formulas_file import is_formulas_file, load_formulas
from tensortide.formulas.invert import solve as solved
from tensortide.formulas.of_graph import formulas_of_graph
from tensortide.formulas.projection import PPOPP19, domain_of
from tensortide.formulas.projection import project as projected
from tensortide.formulas.shares import shares
from tensortide.formulas.sweep import axis
from tensortide.formulas.sweep import sweep as tabulated
from tensortide.formulas.target import check_target
from tensortide.graph.sizes import known_sizes
from tensortide.importers.door import File, resolve
from tensortide.recorder import resolver
from tensortide.recorder.script import Script
from tensortide.recorder.target import find_workload, parse_settings

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document

formulas = App(
    name="formulas",
    help="Find a step's costs as formulas in its hyperparameters; tabulate, solve and extrapolate them.",
    help_format="plaintext",
)

Target = Annotated[
    str, Parameter(help="A file of formulas, a .meta graph, or a workload: file.py:function or an example.")
]
Confirm: TypeAlias = Callable[[Solution], Solution]
Paths = Annotated[
    tuple[str, ...], option("--path", "A symbol that depends on others: --path hidden=64*heads. Repeatable.")
]


Strict = Annotated[
    bool,
    option("--strict", "What has no formula or no cost rule, is extrapolated, or cannot be checked is an error."),
]


@Parameter(name="*")
@dataclass(frozen=True)
class FormulaOptions:
    """Region and symbols of the formulas, and output options."""

    files: Files = Files()  # noqa: RUF009
    set: Annotated[
        tuple[str, ...], option("--set", "Set a value: key=value. Repeatable: --set seq=1024 --set batch=2.")
    ] = ()
    domain: DomainOptions = DomainOptions()  # noqa: RUF009
    assume: Annotated[tuple[str, ...], option("--assume", ASSUME)] = ()
    strict: Strict = False
    out: OutputOptions = OutputOptions()  # noqa: RUF009
    reading: Annotated[ReadingOptions, Parameter(name="*", show=False)] = dataclasses.field(
        default_factory=ReadingOptions
    )

    def formulas(self, target: str, needed: Iterable[str]) -> Formulas:
        """The Formulas of ``target`` at these settings; ``needed`` are the symbols that the verb works on."""
        return self.source(target, needed)[0]

    def source(self, target: str, needed: Iterable[str]) -> tuple[Formulas, Confirm]:
        """The same with a check of solutions: of a workload by captures, of a file by none, which they say."""
        workload = find_workload(target)
        if workload is None and is_formulas_file(target):
            self._refuse(f"{target} is a file of formulas")
            costs = load_formulas(target).at(**self.bindings())
            self.require(f"{name} lacks {part.unexplained}" for name, part in costs.partial.items())
            return costs, _unconfirmed("a file of formulas")
        if workload is None and target.endswith(".json") and Path(target).is_file():
            made = "tensortide formulas show WORKLOAD --formulas FILE"
            raise ExpressionError(f"{target} is no file of formulas: {made} writes one")
        found = workload or resolve(target)
        if isinstance(found, File):
            self._refuse(f"{found}, and its symbols are found in it")
            step = found.read(None, durations=False, **self.reading.given())
            symbols = step.symbols or known_sizes(step.graph)
            costs = formulas_of_graph(step.graph, symbols, found.path.name).at(**self.bindings())
            return costs, _unconfirmed("a graph")
        if isinstance(found, Script):
            raise WorkloadError(f"{found}: one step of it has no formulas. Write a workload with hyperparameters")
        self.reading.refuse(f"{target} is a workload")
        over, settings = [*needed], parse_settings(self.set, found.function, target)
        if "batch" in inspect.signature(found.function).parameters:
            over.append("batch")
        quiet, strict = self.out.quiet, self.strict
        derived = self.domain.derive(found, settings, over, assume=self.assume, quiet=quiet, strict=strict)
        assume = assumed(self.assume, expressions=True)
        check = partial(confirm, found=derived, workload=found.function, assume=assume, resolver=resolver)
        return derived.formulas, check

    def refuse_set(self, target: str, names: Iterable[str], what: str) -> None:
        """Raise ExpressionError if ``--set`` gives a symbol that is varied; of a workload, it moves the samples."""
        given = {setting.partition("=")[0].strip() for setting in self.set}
        if find_workload(target) is None and (both := sorted(given & {*names})):
            raise ExpressionError(f"{', '.join(both)} cannot be {what} and set at once")

    def _refuse(self, what: str) -> None:
        if self.domain != DomainOptions() or self.assume:
            raise WorkloadError(f"{what}: --symbols, --condition, --values and --assume go with a workload")

    def require(self, doubts: Iterable[str]) -> None:
        """Raise UnknownCost, as ``--strict`` asks, if there are doubts."""
        if self.strict and (found := list(dict.fromkeys(doubts))):
            raise UnknownCost("\n  ".join(["--strict: not everything is known:", *found]))

    def bindings(self) -> dict[str, int]:
        """The values of ``--set``, which are whole numbers."""
        values: dict[str, int] = {}
        for setting in self.set:
            name, equals, value = (part.strip() for part in setting.partition("="))
            if not equals or not re.fullmatch(r"\d+", value):
                raise ExpressionError(f"--set takes key=value with a whole number, not {setting!r}")
            values[name] = int(value)
        return values

    def show(self, document: Document, costs: Formulas, *, table: str, keys: Sequence[str] = ()) -> None:
        """Write the files that are asked for, and show ``document``, which follows from ``costs``."""
        from tensortide.reports.sections.assumed import assuming

        document = assuming(document, costs.assumptions)
        show_document(document, self.out, wrote=self.files.write(document, table=table, keys=keys))


def _unconfirmed(what: str) -> Confirm:
    """Return a check of solutions that have no workload to capture."""
    return partial(replace, unchecked=f"{what} has no step to capture; solve for the workload itself")


def path_of(steps: Iterable[str]) -> tuple[dict[str, Expr], set[str]]:
    """Parse ``--path hidden=64*heads``: the dependent symbols with their expressions, and all symbols that occur."""
    path: dict[str, Expr] = {}
    for step in steps:
        name, equals, expr = step.partition("=")
        if not equals:
            raise ExpressionError(f"--path takes symbol=expression, not {step!r}")
        path[name.strip()] = parse(expr)
    return path, {*path, *(name for expr in path.values() for name in expr.symbols)}


@formulas.command
def show(
    target: Target,
    /,
    *,
    depth: Depth = 3,
    top: Top = 15,
    files: Files = Files(),  # noqa: B008
    chosen: SymbolOptions = SymbolOptions(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    strict: Strict = False,
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Show the totals of one step as formulas in its hyperparameters, by phase, module and op, and where they hold.

    Without --symbols every hyperparameter that is an integer is a symbol.
    """
    files.check()
    if find_workload(target) is None:
        from tensortide.reports.sections.formulas import document_of_file

        if chosen != SymbolOptions() or options != CaptureOptions(set=options.set, reading=options.reading):
            raise WorkloadError(f"{target} is no workload: of these options --set alone goes with it")
        reading = FormulaOptions(set=options.set, strict=strict, reading=options.reading)
        made = document_of_file(reading.formulas(target, ()))
    else:
        chosen = chosen if chosen.symbols else dataclasses.replace(chosen, symbols=ALL)
        made = count_symbols(target, chosen, options, strict=strict, depth=depth, top=top, quiet=out.quiet)
    show_document(made, out, wrote=files.write(made, table="totals"))


@formulas.command
def sweep(
    target: Target,
    /,
    *,
    over: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(), help="Values of a symbol: hidden=256:8192:*2, seq=128:1024:128, batch=1,2,4. Repeatable."
        ),
    ],
    workers: WorkerOptions = WorkerOptions(),  # noqa: B008
    asked: FormulaOptions = FormulaOptions(),
) -> None:
    """Tabulate the totals of one step over ranges of its hyperparameters."""
    from tensortide.reports.sections.sweep import check_drawable, document

    asked.files.check()
    axes = dict(map(axis, over))
    if len(axes) < len(over):
        named = [axis(text)[0] for text in over]
        twice = next(name for name in named if named.count(name) > 1)
        raise ExpressionError(f"{twice} is swept twice: write its values as one, --over {twice}=8,9")
    asked.refuse_set(target, axes, "swept")
    costs = asked.formulas(target, axes)
    with progress(asked.out.quiet) as say:
        table = tabulated(costs, axes, workers.where, say)
    asked.require(
        f"{', '.join(f'{n}={v}' for n, v in zip(table.over, point.at, strict=True))}: "
        + (f"needs {point.outside}" if point.outside else f"extrapolated in {point.extrapolated}")
        for point in table.points
        if point.outside or point.extrapolated
    )
    if asked.files.figure is not None:
        check_drawable(table)
    asked.show(document(table), costs, table="points")


@formulas.command
def solve(
    target: Target,
    /,
    *,
    symbol: Annotated[str, Parameter(name="--for", help="The hyperparameter to solve for.")],
    where: Annotated[str, Parameter(help='What it must reach: "peak_bytes <= 24GiB", "flops/bytes >= 19.9".')],
    want: Annotated[
        Literal["largest", "smallest"] | None,
        option("--want", "The largest or the smallest value that meets the goal (default: the one that exists)."),
    ] = None,
    asked: FormulaOptions = FormulaOptions(),
) -> None:
    """Find the value of one hyperparameter with which a total reaches a target."""
    from tensortide.reports.sections.solution import document

    asked.files.check()
    workload = find_workload(target)
    asked.refuse_set(target, [symbol], "solved for")
    if workload is not None:
        check_target(where, inspect.signature(workload.function).parameters)
    costs, confirmed = asked.source(target, [symbol])
    solution = confirmed(solved(costs, symbol, where, want=want))
    doubts = {"not checked": solution.unchecked, "extrapolated in": told(solution.extrapolated)}
    asked.require(f"{what} {why}" for what, why in doubts.items() if why)
    asked.show(document(solution), costs, table="values")


@formulas.command
def growth(
    target: Target,
    /,
    *,
    of: Annotated[str, Parameter(name="--growth", help="The hyperparameter that grows.")],
    path: Paths = (),
    batch: Annotated[str, option("--batch", "The symbol of the batch (default: batch or b).")] = "",
    top: Top = 4,
    asked: FormulaOptions = FormulaOptions(),
) -> None:
    """Show what one step costs per parameter as the model grows, and where the growth comes from.

    --figure draws FLOPs per byte against the batch, with the ridge of an accelerator.
    """
    from tensortide.reports.sections.growth import document, intensity_scatter

    asked.files.check()
    steps, symbols = path_of(path)
    costs = asked.formulas(target, [of, *sorted(symbols), *([batch] if batch else [])])
    found = asymptotics(costs, of, path=steps, batch=batch)
    draws = asked.files.figure is not None
    drawn = intensity_scatter(costs.along(steps), of, found.batch, PPOPP19.roof()) if draws else None
    claimed = costs.totals_at(costs.defaults)
    terms = {name: shares(costs, name) for name in costs.totals if name in claimed}
    made = document(found, terms, drawn, top=top)
    asked.show(made, costs, table="per_parameter", keys=("intensity_by_batch",))


@formulas.command
def project(
    target: Target,
    /,
    *,
    domain: Annotated[str, Parameter(help="word_lm, char_lm, nmt, speech or image.")],
    growth: Annotated[str, Parameter(help="The hyperparameter that grows.")],
    path: Paths = (),
    batch: Annotated[str, Parameter(help="The symbol of the batch; without --set it is chosen.")] = "batch",
    samples_per_step: Annotated[
        str, option("--samples-per-step", "Samples a step trains on: batch*seq (default: the batch).")
    ] = "",
    error: Annotated[str, option("--error", "The error to reach (default: the domain's).")] = "",
    samples: Annotated[
        float | None,
        option("--samples", "Number of samples to train on, in place of the learning curve's."),
        Parameter(validator=Real(above=0)),
    ] = None,
    asked: FormulaOptions = FormulaOptions(),
) -> None:
    """Project what a model must be to reach an accuracy, and what a step and an epoch of it take."""
    from tensortide.reports.sections.projection import document

    asked.files.check()
    chosen, (steps, symbols) = domain_of(domain), path_of(path)
    needed = {growth, batch, *symbols, *(parse(samples_per_step).symbols if samples_per_step else ())}
    costs = asked.formulas(target, sorted(needed))
    found = projected(
        costs,
        chosen,
        growth,
        batch=batch,
        samples_per_step=samples_per_step,
        target=error,
        samples=samples,
        path=steps,
        at={name: value for name, value in asked.bindings().items() if name in costs.symbols},
    )
    asked.show(document(found), costs, table="requirements")
