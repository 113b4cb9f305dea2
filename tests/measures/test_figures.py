"""Figures of modules add up to the metrics of the step, whatever the model."""

from __future__ import annotations

import msgspec
import pytest

from tensortide.measures.checks.assertions import Quantity
from tensortide.measures.checks.measured import Measured
from tensortide.measures.figures import BY_MODULE, NONE, Figures, figures_by_module, matching
from tensortide.measures.registry import default_registry
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
    found = figures_by_module(Measured(captured(checkpointed), REGISTRY).captured)
    assert found["first.0"].recomputed_flops > 0
    assert not any(one.recomputed_ops for path, one in found.items() if not path.startswith("first"))


def test_a_pattern_matches_modules_with_all_inside() -> None:
    paths = ["(root)", "(outside)", "blocks.0", "blocks.0.mlp", "blocks.1.mlp.up", "head", "blocksy"]
    assert matching("blocks.*", paths) == {"blocks.0", "blocks.0.mlp", "blocks.1.mlp.up"}
    assert matching("blocks", paths) == {"blocks.0", "blocks.0.mlp", "blocks.1.mlp.up"}
    assert matching("*.mlp", paths) == {"blocks.0.mlp", "blocks.1.mlp.up"}
    assert matching("*", paths) == set(paths)
    assert matching("block", paths) == set()


def test_every_figure_is_some_metric() -> None:
    ones = {field: Figures(**{field: 1}) for field in Figures.__struct_fields__ if field != "time_ns"}
    assert all(any(getattr(one, amount) for amount in BY_MODULE.values()) for one in ones.values())
    assert set(BY_MODULE) <= set(REGISTRY)
    assert msgspec.structs.astuple(NONE) == (*[0] * len(ones), None)
