"""Projections: what a model must be to reach an accuracy, and what training it takes.

Learning curves and growth of models in five domains, and the machine assumed: J. Hestness, N. Ardalani, G. Diamos,
"Beyond Human-Level Accuracy: Computational Challenges in Deep Learning", PPoPP 2019, tables 1 and 3. Constants are kept
as printed: their digits say how well they are known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, NamedTuple

import msgspec

from tensortide.errors import ExpressionError
from tensortide.expr import Expr, parse
from tensortide.formulas.formulas import Formulas, told
from tensortide.formulas.invert import solve
from tensortide.shown import Show, Shown

BATCH_FACTOR = Fraction(3, 2)
"""Time per sample is least near this multiple of the batch at which compute and memory balance."""
MEMORY = ("peak_bytes", "minimal_footprint_upper_bytes", "footprint_bytes")
"""Totals that state the memory of a step, in order of preference."""


class Interval(NamedTuple):
    """A number, and the least and the most that it may be given how its inputs are rounded."""

    value: float
    low: float
    high: float


def rounded(text: str) -> Interval:
    """A printed number: known to half a unit of its last digit."""
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    half = Decimal(5).scaleb(int(exponent) - 1)
    return Interval(float(number), float(number - half), float(number + half))


def combined(function: Callable[..., float], *inputs: Interval) -> Interval:
    """``function`` of the inputs, and its extremes over the corners of their intervals."""
    corners = [function(*corner) for corner in itertools.product(*((i.low, i.high) for i in inputs))]
    return Interval(function(*(i.value for i in inputs)), min(corners), max(corners))


class Domain(msgspec.Struct, frozen=True):
    """A learning curve ``error = alpha * samples**beta_g`` and model growth ``parameters = sigma * samples**beta_p``.

    Numbers are texts with the digits they are known to; ``sigma`` gives parameters in millions. ``published`` are the
    samples, parameters and batch of the source's own projection.
    """

    name: str
    model: str
    metric: str
    unit: str
    error: str
    target: str
    samples: str
    alpha: str
    beta_g: str
    sigma: str
    beta_p: str
    published_samples: float
    published_parameters: float
    published_batch: int

    def samples_for(self, error: str) -> Interval:
        """Samples to train on until the error is ``error``."""
        return combined(
            lambda e, alpha, beta: (e / alpha) ** (1 / beta), *map(rounded, (error, self.alpha, self.beta_g))
        )

    def parameters_for(self, samples: Interval) -> Interval:
        """Parameters of the model that makes the most of so many samples."""
        return combined(lambda m, sigma, beta: 1e6 * sigma * m**beta, samples, *map(rounded, (self.sigma, self.beta_p)))

    def error_at(self, samples: float) -> float:
        """Error after training on so many samples."""
        return float(self.alpha) * math.pow(samples, float(self.beta_g))


DOMAINS: dict[str, Domain] = {
    domain.name: domain
    for domain in (
        Domain(
            *("word_lm", "word language model, LSTM", "nat/word", "words"),
            *("3.37", "2.48", "768E+6", "13.0", "-0.066", "9.4E-4", "0.68"),
            *(77e9, 23.8e9, 128),
        ),
        Domain(
            *("char_lm", "character language model, RHN", "bit/char", "characters"),
            *("1.30", "0.70", "3.48E+9", "9.39", "-0.092", "1.2E-5", "0.89"),
            *(3.4e12, 146e9, 96),
        ),
        Domain(
            *("nmt", "translation, attention LSTM", "word-piece error", "word pieces"),
            *("0.28", "0.12", "130E+6", "3.06", "-0.128", "6.4E-4", "0.68"),
            *(97.4e9, 18.9e9, 96),
        ),
        Domain(
            *("speech", "speech recognition, hybrid attention", "character error", "characters"),
            *("0.095", "0.04", "425E+6", "30.5", "-0.291", "2.4E-3", "0.54"),
            *(14e9, 727e6, 128),
        ),
        Domain(
            *("image", "image classification, ResNet", "top-1 error", "images"),
            *("0.194", "0.05", "1.3E+6", "15.0", "-0.309", "2.0E-2", "0.57"),
            *(103e6, 732e6, 32),
        ),
    )
}
"""The domains by name."""


def domain_of(name: str) -> Domain:
    """The domain ``name``. Raises ExpressionError."""
    if name not in DOMAINS:
        raise ExpressionError(f"there is no domain {name!r}; there are {', '.join(DOMAINS)}")
    return DOMAINS[name]


class Roof(msgspec.Struct, frozen=True):
    """The rates that a training step attains on a device, and the memory of the device."""

    name: str
    flops_per_s: float
    bytes_per_s: float
    memory_bytes: int | None

    @property
    def ridge_flops_per_byte(self) -> float:
        """FLOPs per byte from which on a step is bound by compute."""
        return self.flops_per_s / self.bytes_per_s

    def seconds(self, flops: int, accessed_bytes: int) -> tuple[float, float]:
        """Time of the arithmetic and of moving the bytes; the step takes the longer of the two."""
        return flops / self.flops_per_s, accessed_bytes / self.bytes_per_s


PPOPP19 = Roof("ppopp19", 15.67e12 * 0.8, 898e9 * 0.7, 32 * 10**9)
"""The accelerator of the source's projections, and the shares of its peak rates that the source assumes."""


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements of one model, the one nearest to the parameters asked for, trained on so many ``samples``.

    ``held_bytes`` is the total ``Projection.held``. ``extrapolated``: symbols outside of the ranges in which the
    formulas were tested, and these, as text.
    """

    label: Annotated[str, Show()]
    samples: Annotated[float, Show("Samples", "amount")]
    setting: dict[str, int]
    totals: dict[str, int]
    samples_per_step: int
    compute_s: float
    memory_s: float
    held_bytes: Annotated[int | None, Show(at_width=96)]
    extrapolated: Annotated[tuple[str, ...], Show(data=True)] = ()

    @property
    def parameters(self) -> Annotated[int, Show("Parameters", "amount")]:
        return self.totals["parameters"]

    @property
    def flops(self) -> Annotated[int, Show("FLOPs")]:
        return self.totals["flops"]

    @property
    def accessed_bytes(self) -> Annotated[int, Show("Bytes")]:
        return self.totals["bytes"]

    @property
    def step_s(self) -> Annotated[float, Show("Step")]:
        """The longer of compute and memory."""
        return max(self.compute_s, self.memory_s)

    @property
    def bound(self) -> Annotated[str, Show("bound by", at_width=118)]:
        return "compute" if self.compute_s >= self.memory_s else "memory"

    @property
    def epoch_s(self) -> Annotated[float, Show("Epoch")]:
        """One pass over the samples at ``samples_per_step``."""
        return self.step_s * self.samples / self.samples_per_step


class Projection(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """Requirements today and at ``target``, the error to reach.

    ``low`` and ``high`` are what the rounding of the constants leaves open. ``ridge_batch`` is the batch at the target
    from which on compute takes longer than memory (None: none does).
    """

    SECTION = "formula_answers.of_projection"

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
    roof: Roof = PPOPP19,
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
    given, trained = dict(at or {}), parse(samples_per_step or batch)
    formulas = _checked(formulas, given, path or {}, (batch, *sorted(trained.symbols)))
    needed = Interval(samples, samples, samples) if samples else domain.samples_for(target or domain.target)
    wanted = _wanted(domain, needed)
    models = {label: _sized(formulas, growth, parameters) for label, (_, parameters) in wanted.items()}
    balance = _ridge_batch(models["target"], batch, roof)
    if batch not in given and balance is not None:
        models = {label: model.at(**{batch: math.ceil(balance * BATCH_FACTOR)}) for label, model in models.items()}
    held = next((name for name in MEMORY if name in formulas.totals), "")
    needs = (_requirement(label, model, wanted[label][0], trained, roof, held) for label, model in models.items())
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
        return solve(formulas, batch, f"flops/bytes >= {roof.ridge_flops_per_byte:.6f}", want="smallest").value
    except ExpressionError:
        return None


def _requirement(label: str, formulas: Formulas, samples: float, trained: Expr, roof: Roof, held: str) -> Requirement:
    setting, totals = dict(formulas.defaults), formulas.evaluate()
    compute_s, memory_s = roof.seconds(totals["flops"], totals["bytes"])
    return Requirement(
        label=label,
        samples=samples,
        setting=setting,
        totals=totals,
        samples_per_step=trained.evaluate(setting),
        compute_s=compute_s,
        memory_s=memory_s,
        held_bytes=totals.get(held),
        extrapolated=tuple(told({name: ends}) for name, ends in formulas.extrapolated(setting).items()),
    )
