"""Figures of modules add up to the metrics of the step, whatever the model."""

from __future__ import annotations

import pytest

from tensortide.measures.checks.assertions import Quantity
from tensortide.measures.checks.measured import Measured
from tensortide.measures.registry import default_registry
from tensortide.timelines.module_figures import BY_MODULE, NONE
from tests.graphs import stored
from tests.marks import some_slow
from tests.measures.checks.steps import blocks, captured, checkpointed, tiny

REGISTRY = default_registry()
SLOW = ("alexnet", "gru", "nmt", "treelstm")


STORED = ("gpt2", "conv", "lstm", "mixtral", "mlp", "unet", "unrolled_gan", "vit", "word2vec")


@pytest.mark.parametrize("name", some_slow((*STORED, *SLOW), SLOW))
def test_figures_of_modules_add_up_to_the_step(name: str) -> None:
    measured = Measured(tiny(name) if name in SLOW else stored(name), REGISTRY)
    whole = sum(measured.modules.values(), start=NONE)
    for metric, amount in BY_MODULE.items():
        value = measured.read(Quantity(REGISTRY[metric].metric)).value
        if value is not None:
            assert getattr(whole, amount) == value, metric
            assert measured.read(Quantity(REGISTRY[metric].metric, modules="*")).value == value, metric


def test_a_module_has_what_arithmetic_says() -> None:
    """Of a layer 8 -> 16 at batch 2: products forward, and two of that size backward."""
    measured = Measured(captured(blocks, second=16), REGISTRY)
    found = measured.modules["blocks.1.0"]
    assert found.macs == 3 * 2 * 8 * 16
    assert found.parameters == 8 * 16 + 16
    assert found.parameter_bytes == 4 * found.parameters
    assert measured.modules["blocks.0.0"].macs == 2 * 2 * 8 * 8  # its input takes no gradient


def test_recomputation_is_of_the_module_that_runs_again() -> None:
    found = Measured(captured(checkpointed), REGISTRY).modules
    assert found["first.0"].recomputed_flops > 0
    assert not any(one.recomputed_ops for path, one in found.items() if not path.startswith("first"))


def test_every_figure_that_says_so_is_a_metric() -> None:
    assert set(BY_MODULE) <= set(REGISTRY)
