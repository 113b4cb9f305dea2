"""Questions that formulas answer: what they are, what they are over ranges, where a total reaches a target, how costs
grow, and what training to an accuracy takes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from tensortide.errors import ExpressionError
from tensortide.executors.request import WorkerRequest
from tensortide.expr import Expr, parse
from tensortide.formulas.asymptotics import Asymptotics, asymptotics
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.invert import solve
from tensortide.formulas.projection import Domain, Projection, domain_of, project
from tensortide.formulas.request import ALL, FORMULAS, FormulaFiles, FormulaRequest
from tensortide.formulas.result import Symbolic
from tensortide.formulas.shares import Share, shares
from tensortide.formulas.solution import Solution
from tensortide.formulas.sweep import Sweep, axis, sweep
from tensortide.formulas.target import check_target
from tensortide.progress import Say, silent
from tensortide.recorder.target import find_workload
from tensortide.request import Arg, Opt, Request, Rule
from tensortide.targets.requests import Depth, Top, described, refuse


class Follows(NamedTuple):
    """A symbol, and the expression that it follows."""

    symbol: str
    expr: Expr


def _follows(text: str) -> Follows:
    name, equals, expr = text.partition("=")
    if not equals:
        raise ExpressionError(f"--path takes symbol=expression, not {text!r}")
    return Follows(name.strip(), parse(expr))


def _symbols(path: Iterable[Follows]) -> set[str]:
    """All symbols that occur in a path."""
    return {symbol for name, expr in path for symbol in (name, *expr.symbols)}


Along = Annotated[
    tuple[Follows, ...],
    Opt(
        "A hyperparameter that follows from others: --path hidden=64*heads.",
        read=_follows,
        common=True,
        value="NAME=FORMULA",
    ),
]


# -- what they are ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ShowRequest(Request):
    """What are the totals of one step as formulas?"""

    target: Annotated[str, Arg(FORMULAS)]
    depth: Depth = 3
    top: Top = 15
    written: FormulaFiles = FormulaFiles()
    step: FormulaRequest = FormulaRequest()


def answer_show(asked: ShowRequest, say: Say = silent) -> Symbolic | Formulas:
    """The formulas of a workload, in all hyperparameters that are integers unless it is said; or those of a file."""
    workload, step = find_workload(asked.target), asked.step
    if workload is None:
        refuse(asked.written, f"{asked.target} is no workload", "file", "step")
        return step.formulas_of(asked.target, say=say)[0]
    refuse(step, *described(workload))
    domain = step.domain if step.domain.symbols else dataclasses.replace(step.domain, symbols=ALL)
    return domain.derived(workload, step, say=say)


# -- over ranges ------------------------------------------------------------------------------------


class Swept(NamedTuple):
    """A symbol, and the values over which it is swept."""

    symbol: str
    values: tuple[int, ...]


def _swept(text: str) -> Swept:
    return Swept(*axis(text))


def _twice(asked: Request) -> str | None:
    """Say which symbol is swept twice."""
    names = [name for name, _ in asked.get("over")]
    twice = next((name for name in names if names.count(name) > 1), None)
    return twice and f"{twice} is swept twice: write its values as one, --over {twice}=8,9"


@dataclass(frozen=True, kw_only=True)
class SweepRequest(Request):
    """What are the totals of one step over ranges of its hyperparameters?"""

    GROUP = "The question"

    target: Annotated[str, Arg(FORMULAS)]
    over: Annotated[
        tuple[Swept, ...],
        Opt(
            "Values of a hyperparameter: batch=1,2,4, seq=128:1024:128 (in steps of 128), hidden=256:8192:*2 "
            "(doubled).",
            read=_swept,
            common=True,
            value="NAME=VALUES",
        ),
    ]
    workers: WorkerRequest = WorkerRequest()
    step: FormulaRequest = FormulaRequest()

    RULES = (Rule(("over",), _twice),)


def answer_sweep(asked: SweepRequest, say: Say = silent) -> tuple[Formulas, Sweep]:
    """The formulas, and their totals at every point. Raises UnknownCost, as ``strict`` asks, for points outside."""
    axes = dict(asked.over)
    asked.step.refuse_set(asked.target, axes, "swept")
    costs, _ = asked.step.formulas_of(asked.target, axes, say)
    found = sweep(costs, axes, asked.workers.where, say)
    asked.step.require(
        f"{', '.join(f'{n}={v}' for n, v in zip(found.over, point.at, strict=True))}: "
        + (f"needs {point.outside}" if point.outside else f"extrapolated in {point.extrapolated}")
        for point in found.points
        if point.outside or point.extrapolated
    )
    return costs, found


# -- the other way round ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SolveRequest(Request):
    """With which value of a hyperparameter does a total reach a target?"""

    GROUP = "The question"

    target: Annotated[str, Arg(FORMULAS)]
    symbol: Annotated[str, Opt("Hyperparameter to solve for, such as batch.", "--for", common=True, value="NAME")]
    where: Annotated[
        str, Opt("Goal to reach: 'peak_bytes <= 24GiB', 'flops/bytes >= 19.9'.", common=True, value="GOAL")
    ]
    want: Annotated[
        Literal["largest", "smallest"] | None,
        Opt("The largest or the smallest value that meets the goal (default: the one that exists).", common=True),
    ] = None
    step: FormulaRequest = FormulaRequest()


def answer_solve(asked: SolveRequest, say: Say = silent) -> tuple[Formulas, Solution]:
    """The formulas, and the value, checked by captures where there is a workload.

    Raises:
        NoSolution: no value reaches the target.
        UnknownCost: as ``strict`` asks, if the value is not checked, or extrapolated.
    """
    workload = find_workload(asked.target)
    asked.step.refuse_set(asked.target, [asked.symbol], "solved for")
    if workload is not None:
        check_target(asked.where, inspect.signature(workload.function).parameters)
    costs, confirmed = asked.step.formulas_of(asked.target, [asked.symbol], say)
    found = confirmed(solve(costs, asked.symbol, asked.where, want=asked.want))
    doubts = {"not checked": found.unchecked, "extrapolated in": found.untested}
    asked.step.require(f"{what} {why}" for what, why in doubts.items() if why)
    return costs, found


# -- as the model grows -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GrowthRequest(Request):
    """What does one step cost per parameter as the model grows?"""

    GROUP = "The question"

    target: Annotated[str, Arg(FORMULAS)]
    of: Annotated[str, Opt("Hyperparameter that grows, such as hidden.", "--growth", common=True, value="NAME")]
    path: Along = ()
    batch: Annotated[str, Opt("The symbol of the batch (default: batch or b).", value="NAME")] = ""
    top: Top = 4
    step: FormulaRequest = FormulaRequest()


class Growing(NamedTuple):
    """Costs of a growing model; ``terms`` are the shares in each total."""

    formulas: Formulas
    found: Asymptotics
    terms: Mapping[str, Sequence[Share]]


def answer_growth(asked: GrowthRequest, say: Say = silent) -> Growing:
    """Leading and next terms of the costs, and the shares of their terms at the defaults."""
    needed = [asked.of, *sorted(_symbols(asked.path)), *([asked.batch] if asked.batch else [])]
    costs, _ = asked.step.formulas_of(asked.target, needed, say)
    found = asymptotics(costs, asked.of, path=dict(asked.path), batch=asked.batch)
    claimed = costs.totals_at(costs.defaults)
    terms = {name: shares(costs, name) for name in costs.totals if name in claimed}
    return Growing(costs, found, terms)


# -- to an accuracy ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ProjectRequest(Request):
    """What must a model be to reach an accuracy, and what do a step and an epoch of it take?"""

    GROUP = "The question"

    target: Annotated[str, Arg(FORMULAS)]
    domain: Annotated[
        Domain, Opt("Kind of model: word_lm, char_lm, nmt, speech or image.", read=domain_of, common=True, value="NAME")
    ]
    growth: Annotated[str, Opt("Hyperparameter that grows, such as hidden.", common=True, value="NAME")]
    path: Along = ()
    batch: Annotated[str, Opt("The symbol of the batch; without --set it is chosen.", value="NAME")] = "batch"
    samples_per_step: Annotated[
        str, Opt("Samples a step trains on: batch*seq (default: the batch).", value="FORMULA")
    ] = ""
    error: Annotated[str, Opt("Error to reach (default: the domain's).", common=True, value="NUMBER")] = ""
    samples: Annotated[
        float | None, Opt("Number of samples to train on, in place of the learning curve's.", above=0)
    ] = None
    step: FormulaRequest = FormulaRequest()


def answer_project(asked: ProjectRequest, say: Say = silent) -> tuple[Formulas, Projection]:
    """The formulas, and the projection."""
    trained = parse(asked.samples_per_step).symbols if asked.samples_per_step else ()
    needed = {asked.growth, asked.batch, *_symbols(asked.path), *trained}
    costs, _ = asked.step.formulas_of(asked.target, sorted(needed), say)
    found = project(
        costs,
        asked.domain,
        asked.growth,
        batch=asked.batch,
        samples_per_step=asked.samples_per_step,
        target=asked.error,
        samples=asked.samples,
        path=dict(asked.path),
        at={name: value for name, value in asked.step.bindings().items() if name in costs.symbols},
    )
    return costs, found
