"""The closed form of what launches do: kernels of attention, untied heads, recomputation op by op, compiled layers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tensortide.errors import TensortideError
from tensortide.parallelism.closed import Configuration, Transformer, predict_step, rank_memory, shipped, transformer
from tensortide.parallelism.closed.predict import StepPrediction
from tensortide.parallelism.closed.published import PUBLISHED
from tensortide.timing import device
from tensortide.timing.attention import KERNELS, basis, speed_of, speeds
from tensortide.timing.collectives import nodes_of
from tests.parallelism.launches import launches

A100, H100 = "A100-SXM-80GB", "H100-SXM-80GB"
LLAMA = transformer("llama3-8b")
FLASH = Configuration(batch=8, data=8, zero=3, recompute="none", fused_attention=True, causal_half=True)


def predicted(one: Configuration, where: str = H100, shape: Transformer = LLAMA) -> StepPrediction:
    return predict_step(shape, one, nodes_of(where, devices_per_node=8))


BILLIONS = {"gpt3-175b": 174.6, "llama2-7b": 6.74, "llama2-70b": 68.98, "llama3-8b": 8.03, "llama3-70b": 70.55}
BILLIONS |= {"llama3-405b": 405.85, "mpt-125m": 0.125, "mpt-7b": 6.65, "mpt-30b": 29.97, "mpt-70b": 64.86}


@pytest.mark.parametrize(("name", "billions"), BILLIONS.items())
def test_published_models_have_their_published_parameters(name: str, billions: float) -> None:
    assert transformer(name).parameters / 1e9 == pytest.approx(billions, rel=0.02)


def test_every_published_model_is_read_and_settings_after_a_name_replace_its_own() -> None:
    for name, text in PUBLISHED.items():
        assert transformer(name) == transformer(text)
    assert transformer("Llama3-8B, seq=4096") == replace(LLAMA, seq=4096)
    with pytest.raises(TensortideError, match=r"'llama9' is no setting .* published models are gpt3-175b"):
        transformer("llama9")


def test_a_head_of_its_own_is_a_matrix_more_in_memory_and_in_the_optimizer() -> None:
    tied = replace(LLAMA, untied=False)
    plain = replace(FLASH, zero=0)
    more = LLAMA.vocab * LLAMA.hidden
    assert LLAMA.parameters - tied.parameters == more
    assert rank_memory(LLAMA, plain).states - rank_memory(tied, plain).states == 18 * more
    parts, without = (predicted(plain, shape=shape).parts["optimizer"] for shape in (LLAMA, tied))
    assert parts - without == pytest.approx(28 * more / (0.8 * 3350e9) * 1e9)


def test_attention_takes_its_flops_at_the_speed_of_its_kernel() -> None:
    """Two kernels differ by the FLOPs of the scores over their rates: 2 products forward, 5 backward, half masked."""
    tokens = LLAMA.seq
    flops = LLAMA.layers * 4 * tokens * tokens * LLAMA.hidden / 2

    def seconds(kernel: str) -> float:
        row = speed_of(device(H100), kernel)
        shares = row.shares(tokens, 128)
        return flops / 989e12 * (1 / shares.forward + 2.5 / shares.backward)

    found = [predicted(replace(FLASH, kernel=kernel)).parts["compute"] for kernel in ("flash2", "flash3")]
    assert (found[0] - found[1]) / 1e9 == pytest.approx(seconds("flash2") - seconds("flash3"))


def test_kernels_are_faster_on_long_sequences_and_wide_heads() -> None:
    for row in speeds():
        assert row.shares(512, 128).forward < row.shares(4096, 128).forward < row.forward <= 1
        assert row.shares(4096, 64).backward <= row.shares(4096, 128).backward


def test_a_kernel_without_measurements_is_told_to_have_a_stand_in() -> None:
    assert "21% of the 16-bit peak forward (from whole steps)" in basis(device(H100), "flash2")
    assert "flex, whose speed on H100-SXM-80GB is not known: that of flash2 on this" in basis(device(H100), "flex")
    assert "flash2, whose speed on T4 is not known: that of flash2 on other devices" in basis(device("T4"), "flash2")
    widths = {kernel: predicted(replace(FLASH, kernel=kernel)).time.log_width for kernel in KERNELS}
    assert max(widths["flash2"], widths["cudnn"]) < 0.2
    assert widths["flex"] > 0.6
    assert predicted(FLASH, "V100-SXM-32GB").time.log_width > 0.6


def test_recomputation_op_by_op_lies_between_none_and_all() -> None:
    found = [predicted(replace(FLASH, recompute=kind)) for kind in ("none", "ops", "full")]
    times = [each.time.time_ns for each in found]
    kept = [each.memory.activations for each in found]
    assert times == sorted(times)
    assert kept == sorted(kept, reverse=True)
    # Keys, the output of attention and the second matrix of the feed-forward layer: 79.7 of 218 M elements.
    assert LLAMA.second_products == 4096 * 1024 + 4096 * 4096 + 4096 * 14336


def test_the_closed_form_recomputes_half_of_the_products_op_by_op() -> None:
    """With pointwise ops and attention left out what is recomputed is the products' share of a forward pass."""
    free = replace(shipped().constants, pointwise=0.0)
    none, ops, full = (
        predict_step(LLAMA, replace(FLASH, recompute=kind, compiled=False), nodes_of(H100, devices_per_node=8), free)
        for kind in ("none", "ops", "full")
    )
    scores = (
        4
        * LLAMA.layers
        * LLAMA.seq**2
        * LLAMA.hidden
        / 2
        / 989e12
        / speed_of(device(H100), "flash2").shares(LLAMA.seq, 128).forward
    )
    products = full.parts["compute"] - none.parts["compute"] - scores * 1e9
    share = LLAMA.second_products / LLAMA.layer_weights
    assert ops.parts["compute"] - none.parts["compute"] == pytest.approx(products * share)


def test_compiled_layers_move_fewer_bytes_and_launch_less() -> None:
    eager, compiled = predicted(FLASH).parts, predicted(replace(FLASH, compiled=True)).parts
    assert compiled["compute"] < eager["compute"]
    assert compiled["host"] < eager["host"]
    assert compiled["head"] < eager["head"]


@pytest.fixture
def table(reference: Path) -> Path:
    if not (reference / "launches" / "launches.csv").exists():
        pytest.skip("the table of launches is not committed")
    return reference


def test_launches_of_every_stack_are_near_what_was_measured(table: Path) -> None:
    """Bars: of llm-foundry, whose other half is not in any fit, and of stacks that no constant is fitted to."""
    errors = defaultdict(list)
    for launch in launches(table):
        errors[launch.stack].append(predict_step(*launch.step).time.time_ns / 1e9 / launch.seconds - 1)
    mean = {stack: (float(np.mean(found)), float(np.mean(np.abs(found)))) for stack, found in errors.items()}
    assert all(mean[f"llm-foundry, {gpu}"][1] < 0.05 for gpu in (A100, "A100-SXM-40GB", H100))
    assert all(abs(mean[f"llm-foundry, {gpu}"][0]) < 0.02 for gpu in (A100, "A100-SXM-40GB", H100))
    assert mean["Megatron-LM, H100-SXM-80GB, fp8"][1] < 0.06
    assert mean["torchtitan, H100-96GB"][1] < 0.13
