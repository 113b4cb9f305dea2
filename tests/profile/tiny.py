"""A calibration that takes a second: small steps, few repetitions, and ceilings of small products and copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

from tensortide.profile.calibration import ceilings, networks, ops, run
from tensortide.profile.calibration.networks import Step

PLAN: Mapping[str, Callable[[], Step]] = {
    "linear layers": partial(networks.linear, 8, (16, 32, 8)),
    "other linear layers": partial(networks.linear, 32, (64, 64, 10)),
    "products": partial(ops.products, [(64, 64, 64), (128, 128, 128), (16, 16, 16)]),
    "pointwise ops": partial(ops.pointwise, (4, 64), 64),
}


@contextmanager
def small_ceilings() -> Iterator[None]:
    """Measure ceilings at sizes that take no time, and steps a few times; they drift, which only widens intervals."""
    with patch.dict(ceilings.SIZES, cpu=ceilings.Sizes(128, 1 << 20)), patch.multiple(run, REPEATS=3, FEWER=2):
        yield
