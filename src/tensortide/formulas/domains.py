"""Learning curves and model growth in five domains, and the machine that their projections assume.

Source: J. Hestness, N. Ardalani, G. Diamos, "Beyond Human-Level Accuracy: Computational Challenges in Deep Learning",
PPoPP 2019, tables 1 and 3. Constants are kept as printed: their digits say how well they are known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import NamedTuple

import msgspec

from tensortide.errors import ExpressionError
from tensortide.timing.catalogue import Device
from tensortide.timing.machine import Machine, MachineDevice
from tensortide.timing.rates import Efficiency

__all__ = ["DOMAINS", "PPOPP19", "Domain", "Interval", "domain_of", "rounded"]


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


class Domain(msgspec.Struct, frozen=True, kw_only=True):
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


def _domain(name: str, model: str, metric: str, unit: str, constants: Iterable[str], *published: float) -> Domain:
    error, target, samples, alpha, beta_g, sigma, beta_p = constants
    return Domain(
        name=name,
        model=model,
        metric=metric,
        unit=unit,
        error=error,
        target=target,
        samples=samples,
        alpha=alpha,
        beta_g=beta_g,
        sigma=sigma,
        beta_p=beta_p,
        published_samples=published[0],
        published_parameters=published[1],
        published_batch=int(published[2]),
    )


DOMAINS: dict[str, Domain] = {
    domain.name: domain
    for domain in (
        _domain(
            *("word_lm", "word language model, LSTM", "nat/word", "words"),
            ("3.37", "2.48", "768E+6", "13.0", "-0.066", "9.4E-4", "0.68"),
            *(77e9, 23.8e9, 128),
        ),
        _domain(
            *("char_lm", "character language model, RHN", "bit/char", "characters"),
            ("1.30", "0.70", "3.48E+9", "9.39", "-0.092", "1.2E-5", "0.89"),
            *(3.4e12, 146e9, 96),
        ),
        _domain(
            *("nmt", "translation, attention LSTM", "word-piece error", "word pieces"),
            ("0.28", "0.12", "130E+6", "3.06", "-0.128", "6.4E-4", "0.68"),
            *(97.4e9, 18.9e9, 96),
        ),
        _domain(
            *("speech", "speech recognition, hybrid attention", "character error", "characters"),
            ("0.095", "0.04", "425E+6", "30.5", "-0.291", "2.4E-3", "0.54"),
            *(14e9, 727e6, 128),
        ),
        _domain(
            *("image", "image classification, ResNet", "top-1 error", "images"),
            ("0.194", "0.05", "1.3E+6", "15.0", "-0.309", "2.0E-2", "0.57"),
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


PPOPP19 = Machine(
    "ppopp19",
    {
        "gpu": MachineDevice(
            Device(name="ppopp19", fp32_tflops=15.67, memory_gbytes=32, memory_gbytes_per_s=898), 32 * 10**9
        )
    },
    efficiency=Efficiency(0.8, 0.7, 0.0, "as the source assumes"),
)
"""The accelerator of the source's projections."""
