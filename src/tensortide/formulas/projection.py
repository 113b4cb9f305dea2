"""Projections: what a model must be to reach an accuracy, and what training it takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

from tensortide.errors import ExpressionError
from tensortide.expr import Expr, parse
from tensortide.formulas.domains import PPOPP19, Domain, Interval, rounded
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.invert import solve
from tensortide.shown import Shown
from tensortide.timing.machine import Machine, Roof

__all__ = ["Projection", "Requirement", "project"]

BATCH_FACTOR = Fraction(3, 2)
"""Time per sample is least at about so many times the batch at which compute and memory balance."""
MEMORY = ("peak_bytes", "minimal_footprint_upper_bytes", "footprint_bytes")
"""Totals that say what a step holds: the first that is there counts."""


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements of one model. ``samples`` and ``parameters`` are the request; ``setting`` is the nearest model.

    ``epoch_s`` is one pass over the samples at ``samples_per_step``; ``held_bytes`` the total ``Projection.held``.
    """

    label: str
    samples: float
    parameters: float
    setting: dict[str, int]
    totals: dict[str, int]
    samples_per_step: int
    compute_s: float
    memory_s: float
    step_s: float
    epoch_s: float
    held_bytes: int | None


class Projection(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """Requirements today and at ``target``, the error to reach.

    ``low`` and ``high`` are what the rounding of the constants leaves open. ``ridge_batch`` is the batch at the target
    from which on compute takes longer than memory (None: none does).
    """

    SECTION = "projection"

    workload: str
    domain: Domain
    roof: Roof
    growth: str
    batch: str
    held: str
    target: str
    samples: Interval
    parameters: Interval
    ridge_batch: int | None
    requirements: tuple[Requirement, ...]


def project(
    formulas: Formulas,
    domain: Domain,
    growth: str,
    /,
    *,
    batch: str = "batch",
    samples_per_step: str = "",
    target: str = "",
    samples: float | None = None,
    path: Mapping[str, Expr | int | str] | None = None,
    machine: Machine = PPOPP19,
    at: Mapping[str, int] | None = None,
) -> Projection:
    """Project the resources that ``formulas``, grown by ``growth``, need to reach the target of ``domain``.

    Args:
        batch: the symbol of the batch; without a value in ``at``, 3/2 of what balances compute and memory at target.
        samples_per_step: samples of the domain that a step trains on, in symbols: ``"batch*seq"`` (default: the batch).
        target: the error to reach, instead of the domain's.
        samples: train on so many, instead of what the learning curve asks for.
        path: symbols that follow ``growth``.
        at: values of other symbols, instead of their defaults.

    Raises ExpressionError for unknown names, missing totals (parameters, flops, bytes), and where no model is so large.
    """
    roof, given, trained = machine.roof(), dict(at or {}), parse(samples_per_step or batch)
    formulas = _checked(formulas, given, path or {}, (batch, *sorted(trained.symbols)))
    needed = Interval(samples, samples, samples) if samples else domain.samples_for(target or domain.target)
    wanted = _wanted(domain, needed)
    models = {label: _sized(formulas, growth, parameters) for label, (_, parameters) in wanted.items()}
    balance = _ridge_batch(models["target"], batch, roof)
    if batch not in given and balance is not None:
        models = {label: model.at(**{batch: math.ceil(balance * BATCH_FACTOR)}) for label, model in models.items()}
    held = next((name for name in MEMORY if name in formulas.totals), "")
    needs = (_requirement(label, model, wanted[label], trained, roof, held) for label, model in models.items())
    return Projection(
        workload=formulas.workload,
        domain=domain,
        roof=roof,
        growth=growth,
        batch=batch,
        held=held,
        target=f"{domain.error_at(samples):.3g}" if samples else target or domain.target,
        samples=needed,
        parameters=domain.parameters_for(needed),
        ridge_batch=balance,
        requirements=tuple(needs),
    )


def _checked(
    formulas: Formulas, at: Mapping[str, int], path: Mapping[str, Expr | int | str], used: Iterable[str]
) -> Formulas:
    """``formulas`` at values and along a path, if they have all that a projection uses."""
    for name in ("parameters", "flops", "bytes"):
        formulas.check(name, formulas.totals, "total")
    formulas = formulas.at(**at).along(path)
    for name in used:
        formulas.check(name, formulas.symbols, "symbol")
    return formulas


def _wanted(domain: Domain, needed: Interval) -> dict[str, tuple[float, float]]:
    """Samples and parameters of each model."""
    today, parameters = rounded(domain.samples), domain.parameters_for(needed)
    return {
        "today": (today.value, domain.parameters_for(today).value),
        "target": (needed.value, parameters.value),
        "low": (needed.low, parameters.low),
        "high": (needed.high, parameters.high),
    }


def _sized(formulas: Formulas, growth: str, parameters: float) -> Formulas:
    return formulas.at(**{growth: solve(formulas, growth, f"parameters = {round(parameters)}").value})


def _ridge_batch(formulas: Formulas, batch: str, roof: Roof) -> int | None:
    try:
        return solve(formulas, batch, f"flops/bytes >= {roof.ridge:.6f}", want="smallest").value
    except ExpressionError:
        return None


def _requirement(
    label: str, formulas: Formulas, model: tuple[float, float], trained: Expr, roof: Roof, held: str
) -> Requirement:
    setting, totals = dict(formulas.defaults), formulas.evaluate()
    compute_s, memory_s = roof.seconds(totals["flops"], totals["bytes"])
    per_step = trained.evaluate(setting)
    step_s = max(compute_s, memory_s)
    return Requirement(
        label=label,
        samples=model[0],
        parameters=model[1],
        setting=setting,
        totals=totals,
        samples_per_step=per_step,
        compute_s=compute_s,
        memory_s=memory_s,
        step_s=step_s,
        epoch_s=step_s * model[0] / per_step,
        held_bytes=totals[held] if held else None,
    )
