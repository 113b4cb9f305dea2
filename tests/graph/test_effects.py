"""What a normalisation updates without looking at it, and what draws random numbers."""

from __future__ import annotations

import pytest

from tensortide.graph import TENSOR, Call
from tensortide.graph.effects import blind_slots, draws_random


def call(op: str, training: object, key: str = "training") -> Call:
    slots = (
        ("input", TENSOR),
        ("weight", TENSOR),
        ("bias", None),
        ("running_mean", TENSOR),
        ("running_var", TENSOR),
        (key, training),
    )
    return Call(op, slots, 6, (2, 3), (TENSOR,) * 3, ())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "op", ["aten.native_batch_norm.default", "aten.cudnn_batch_norm.default", "aten.native_batch_norm.out"]
)
def test_running_statistics_in_training(op: str) -> None:
    assert blind_slots(call(op, training=True)) == {2, 3}


def test_a_normalisation_that_always_updates() -> None:
    assert blind_slots(call("aten._batch_norm_with_update.default", None, "momentum")) == {2, 3}


@pytest.mark.parametrize(
    "other",
    [
        call("aten.native_batch_norm.default", training=False),
        call("aten.native_batch_norm.default", training=1),
        call("aten.native_batch_norm.default", True, "train"),
        call("aten.native_layer_norm.default", training=True),
    ],
)
def test_nothing_else(other: Call) -> None:
    assert blind_slots(other) == frozenset()


@pytest.mark.parametrize(
    ("op", "given", "draws"),
    [
        ("aten._scaled_dot_product_flash_attention_for_cpu.default", (), False),  # the dispatcher leaves out 0.0
        ("aten._scaled_dot_product_flash_attention_for_cpu.default", (("dropout_p", 0.0),), False),
        ("aten._scaled_dot_product_flash_attention_for_cpu.default", (("dropout_p", 0.1),), True),
        ("aten.bernoulli_.float", (), True),
    ],
)
def test_attention_draws_random_numbers_for_a_dropout_alone(op: str, given: tuple[()], draws: bool) -> None:
    assert draws_random(Call(op, (("query", TENSOR), *given), 1, (), (TENSOR,), ("random",))) is draws
