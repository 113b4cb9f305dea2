"""Where formulas end: thresholds in a workload's code are found, named, and have formulas on both sides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from tensortide import capture, symbolic
from tensortide.errors import ExpressionError, OutsideRegion
from tensortide.formulas import Symbolic, load_formulas, save_formulas
from tensortide.formulas.confirm import measured
from tensortide.formulas.far_settings import far_settings
from tensortide.formulas.space import Space
from tests.formulas import workloads
from tests.formulas.test_symbolic import assert_formulas_hold
from tests.formulas.threshold_steps import (
    Step,
    by_band,
    by_product,
    by_ratio,
    by_remainder,
    by_shape,
    by_sum,
    capped,
    dilated,
    forward,
    harmless,
    late_norm,
    narrow,
    odd_pooled,
    summed,
    tailed,
)


@cache
def found_of(workload: Callable[..., Step], *over: str) -> Symbolic:
    return symbolic(workload, over=over)


@pytest.mark.parametrize(
    ("workload", "over", "condition", "around"),
    [
        pytest.param(capped, ["hidden"], "hidden < 1024", (1023, 1024, 40_000), marks=pytest.mark.slow),
        (late_norm, ["hidden"], "hidden <= 1024", (1024, 1025)),
        pytest.param(narrow, ["width"], "width > 64", (64, 65), marks=pytest.mark.slow),
        pytest.param(by_shape, ["hidden"], "hidden <= 777", (777, 778), marks=pytest.mark.slow),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_both_sides_of_a_threshold(
    workload: Callable[..., Step], over: list[str], condition: str, around: tuple[int, ...]
) -> None:
    found = found_of(workload, *over)
    assert [str(threshold.condition) for threshold in found.thresholds] == [condition]
    assert condition in map(str, found.formulas.region)
    for value in around:
        said, expected = (
            found.evaluate(**{over[0]: value}),
            measured(capture(workload, hyperparameters={over[0]: value})),
        )
        assert len(said) >= 10
        assert {name: said.get(name, number) for name, number in expected.items()} == expected


def test_what_changes_is_named() -> None:
    (threshold,) = found_of(late_norm, "hidden").thresholds
    assert str(threshold) == "above hidden = 1,024: a LayerNorm appears in *"


@pytest.mark.parametrize(
    ("workload", "over", "condition", "around"),
    [
        (by_product, ["batch", "seq"], "batch*seq <= 2500", [{"batch": 300}, {"seq": 7, "batch": 357}]),
        pytest.param(
            by_product,
            ["batch", "seq", "hidden"],
            "batch*hidden*seq <= 10000",
            [{"batch": 300}, {"seq": 7, "hidden": 99}],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            by_sum,
            ["src", "tgt"],
            "src + tgt <= 600",
            [{"src": 585, "tgt": 2}, {"src": 585, "tgt": 16}],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            by_ratio,
            ["seq", "hidden"],
            "8*hidden >= seq",
            [{"seq": 24, "hidden": 3}, {"seq": 25, "hidden": 3}],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            by_remainder,
            ["seq"],
            "seq % 97 != 0",
            [{"seq": 96}, {"seq": 97}, {"seq": 970}],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            tailed,
            ["vocab", "cutoff"],
            "vocab > cutoff",
            [{"vocab": 101}, {"vocab": 100}, {"vocab": 20, "cutoff": 77}],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            odd_pooled, ["seq"], "seq % 2 == 0", [{"seq": 41}, {"seq": 64}, {"seq": 7}], marks=pytest.mark.slow
        ),
        pytest.param(
            by_band,
            ["hidden"],
            "hidden < 300",
            [{"hidden": 299}, {"hidden": 300}, {"hidden": 350}],
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_a_threshold_in_sizes_of_tensors(
    workload: Callable[..., Step], over: list[str], condition: str, around: list[dict[str, int]]
) -> None:
    """Several sizes decide together: the threshold is what the workload compares, and each side has its formulas."""
    found = symbolic(workload, over=over)
    assert [str(threshold.condition) for threshold in found.thresholds] == [condition]
    for setting in around:
        said, expected = found.evaluate(**setting), measured(capture(workload, hyperparameters=setting))
        assert len(said) >= 10
        assert {name: said.get(name, number) for name, number in expected.items()} == expected


def wide_and_long(seq: int = 64, hidden: int = 64) -> Step:
    extra = [nn.Tanh()] if seq >= 100 and hidden >= 70 else []
    return forward(nn.Sequential(nn.Softmax(-1), *extra), torch.zeros(seq, hidden))


def test_two_conditions_together_are_blamed_together() -> None:
    """Where the second is asked for only if the first holds, neither alone is a threshold."""
    found = symbolic(wide_and_long, over=["seq", "hidden"])
    (threshold,) = found.thresholds
    assert str(threshold) == "above hidden = 69: a Tanh appears in model.* where seq >= 100"
    for setting in ({"hidden": 69, "seq": 200}, {"hidden": 90, "seq": 99}):
        said, expected = found.evaluate(**setting), measured(capture(wide_and_long, hyperparameters=setting))
        assert {name: said.get(name, number) for name, number in expected.items()} == expected


def test_a_comparison_that_changes_nothing_is_no_condition() -> None:
    found = found_of(harmless, "hidden")
    assert (found.thresholds, found.formulas.region) == ((), ())
    assert_formulas_hold(found, harmless, {"hidden": 501}, {"hidden": 2000})


def test_the_range_that_was_tested_is_known(tmp_path: object) -> None:
    found = found_of(harmless, "hidden")
    low, high = found.formulas.tested["hidden"]
    assert low == 1
    assert 32 * 64 <= high < 64 * 64
    assert found.formulas.extrapolated({"hidden": 100_000}) == {"hidden": (low, high)}
    assert found.formulas.extrapolated({"hidden": high}) == {}


def test_the_file_has_both_sides(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("formulas") / "a.formulas.json"
    found = found_of(late_norm, "hidden").formulas
    save_formulas(found, path)
    read = load_formulas(path)
    assert read.others[0].region == found.others[0].region
    assert read.tested == found.tested
    assert read.evaluate(hidden=2000) == found.evaluate(hidden=2000)


def rounded(tokens: int = 64, top: int = 2, experts: int = 8, k: int = 4) -> Step:
    """Sizes that the workload's own code rounds, with fractions, and a power."""
    rows = math.ceil(tokens * top * 1.25 / experts)
    return forward(nn.Linear(2**k, -(-tokens // experts)), torch.zeros(rows, 2**k))


@pytest.mark.parametrize(
    "setting",
    [
        {"tokens": 100, "k": 6},
        pytest.param({"tokens": 100, "experts": 7, "top": 3, "k": 6}, marks=pytest.mark.slow),
    ],
)
def test_what_the_code_computes_is_known(setting: dict[str, int]) -> None:
    found = symbolic(rounded, over=[*setting])
    assert found.held == {}
    assert_formulas_hold(found, rounded, setting, {"tokens": 777, "k": 1}, {})


def refusing(hidden: int = 64, heads: int = 8, groups: int = 2, batch: int = 1) -> Step:
    if hidden % heads or heads % groups:
        raise ValueError("cannot be divided")
    return forward(nn.Linear(hidden // heads * groups, hidden), torch.zeros(batch, hidden // heads * groups))


def test_a_refusal_is_learned_from() -> None:
    found: Symbolic = symbolic(refusing, over=["hidden", "heads", "groups", "batch"])
    assert found.held == {}
    assert found.captures <= 40
    with pytest.raises(ExpressionError, match="do not hold"):
        found.evaluate(hidden=65)
    assert_formulas_hold(found, refusing, {"hidden": 96, "heads": 12, "groups": 4}, {})


def test_a_capture_with_names_is_the_capture_without() -> None:
    from tensortide.formulas.observe import observed

    setting = {"hidden": 64, "heads": 8, "groups": 2, "batch": 3}
    graph, seen = observed(refusing, setting, {}, name="refusing", assume={})
    plain = capture(refusing, hyperparameters=setting, real=False, name="refusing")
    assert graph == plain
    assert [str(condition) for condition in seen.path][:1] == ["hidden % heads == 0"]


def widest(text: int = 30, image: int = 50, batch: int = 4) -> Step:
    wide = max(text, image, 20)
    return forward(nn.Linear(wide, image), torch.zeros(batch, wide))


def test_samples_below_a_threshold_do_not_count() -> None:
    """The first sample is below 20, where the default is not."""
    found = symbolic(widest, over=["image"], hyperparameters={"text": 7})
    assert len(found.formulas.totals) >= 10
    assert "image >= 20" in [str(condition) for condition in found.formulas.region]
    for image in (90, 21):
        said = found.evaluate(image=image)
        expected = measured(capture(widest, hyperparameters={"text": 7, "image": image}))
        assert {name: said.get(name, number) for name, number in expected.items()} == expected


@pytest.mark.slow
def test_samples_beyond_a_threshold_do_not_count() -> None:
    """The first sample is below 20, where the defaults are not."""
    found = symbolic(widest, over=["text", "image"])
    assert len(found.formulas.totals) >= 10
    assert [str(condition) for condition in found.formulas.region][:2] == ["image > text", "image >= 20"]
    for setting in ({"text": 7, "image": 90}, {"text": 89, "image": 90}, {"text": 9, "image": 21}):
        said, expected = found.evaluate(**setting), measured(capture(widest, hyperparameters=setting))
        assert {name: said.get(name, number) for name, number in expected.items()} == expected


def lookups(features: int = 3, width: int = 16) -> Step:
    """What the code computes is computed from the number of repetitions too."""
    tables = nn.ModuleList(nn.Linear(width, width) for _ in range(features))
    head = nn.Linear(features * width, 1)
    x = torch.zeros(4, width)

    def step() -> Tensor:
        out: Tensor = head(torch.cat([table(x) for table in tables], -1))
        return out

    return step


def test_sizes_computed_from_repetitions() -> None:
    found = symbolic(lookups, over=["features"], values={"features": range(1, 7)})
    assert list(found.structural) == ["features"]
    assert found.evaluate(features=20)["parameters"] == 20 * (16 * 16 + 16) + 20 * 16 + 1


@pytest.mark.slow
def test_sizes_computed_from_repetitions_and_another_size() -> None:
    found = symbolic(lookups, over=["features", "width"])
    assert list(found.structural) == ["features"]
    assert found.evaluate(features=20, width=5)["parameters"] == 20 * (5 * 5 + 5) + 20 * 5 + 1


def held(hidden: int = 64, code: int = 5) -> Step:
    """As many layers as half a digit of e where it is narrow, one where it is wide."""
    layers = 1 if hidden > 200 else int("27182818284590452353602874713526"[code]) // 2 + 1
    return forward(nn.Sequential(*(nn.Linear(hidden, hidden) for _ in range(layers))), torch.zeros(4, hidden))


@pytest.mark.slow
def test_what_is_held_on_one_side_is_no_symbol_on_the_other() -> None:
    found = symbolic(held, over=["hidden", "code"]).formulas
    assert found.symbols == ("hidden",)
    assert [other.symbols for other in found.others] == [("hidden",)]
    assert (found.evaluate(hidden=200)["parameters"], found.evaluate(hidden=201)["parameters"]) == (5 * 40_200, 40_602)


def padded(batch: int = 4, size: int = 32, depth: int = 3, kernel: int = 3, stride: int = 2) -> Step:
    """Convolutions that keep the size of an image for odd kernels; for even ones every layer adds a row."""
    return summed(
        nn.Sequential(
            *(nn.Conv2d(2 if i else 1, 2, kernel, stride=1 if i else stride, padding=kernel // 2) for i in range(depth))
        ),
        torch.zeros(batch, 1, size, size),
    )


@pytest.mark.slow
def test_what_cancels_for_odd_sizes_is_not_missed_for_even_ones() -> None:
    found = symbolic(padded, over=["size", "depth", "kernel", "stride"])
    assert {"flops", "bytes", "footprint_bytes"} <= found.formulas.totals.keys()
    settings = [{"kernel": 4}, {"kernel": 4, "depth": 2}, {"kernel": 2, "depth": 5}, {"kernel": 7, "depth": 4}]
    for setting in settings:
        truth = measured(capture(padded, hyperparameters=setting))
        claimed = found.evaluate(**setting)
        assert {name: truth[name] for name in claimed.keys() & truth.keys()} == {
            name: claimed[name] for name in claimed.keys() & truth.keys()
        }


def test_far_settings_have_every_pair_of_remainders() -> None:
    def workload(a: int = 5, b: int = 7, c: int = 9, d: int = 11) -> Step:
        raise NotImplementedError

    space = Space(workload, ["a", "b", "c", "d"], {})
    low = {"a": 5, "b": 7, "c": 11, "d": 13}
    tried = [low, *far_settings(space, list(low), low, [], {})]
    for one, other in itertools.combinations(low, 2):
        assert {(s[one] % 2, s[other] % 2) for s in tried} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_what_is_one_number_in_all_samples_is_tried_as_another() -> None:
    """``index % cycle`` is the index of each layer for all but small cycles."""
    found = symbolic(workloads.cyclic, over=("cycle",))
    for cycle in (3, 1, 2, 4):
        setting = {"cycle": cycle}
        truth = measured(capture(workloads.cyclic, hyperparameters=setting))
        try:
            said = found.evaluate(**setting)
        except OutsideRegion:
            assert cycle < 3
        else:
            assert {name: said[name] for name in truth if name in said} == {n: v for n, v in truth.items() if n in said}


@pytest.mark.slow
def test_what_small_sizes_contradict_is_not_claimed() -> None:
    """With one channel of one sample, gradients are added in place no more."""
    found = symbolic(dilated, over=("batch", "samples", "channels"))
    for batch, samples, channels in itertools.product((1, 2), (2, 40), (1, 3)):
        setting = {"batch": batch, "samples": samples, "channels": channels}
        truth = measured(capture(dilated, hyperparameters=setting))
        try:
            said = found.evaluate(**setting)
        except OutsideRegion:
            assert batch * channels == 1 or samples == 2
        else:
            assert {name: said[name] for name in truth if name in said} == {n: v for n, v in truth.items() if n in said}
