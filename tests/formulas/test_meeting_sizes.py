"""Sizes that meet: where one divides another, PyTorch takes a view for a copy; formulas know on which side they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from tensortide import symbolic
from tensortide.expr import symbol
from tensortide.formulas import Symbolic
from tensortide.formulas.meeting_sizes import _is_multiple
from tests.formulas.judge import Truth, verdicts
from tests.formulas.ordinary_models import llama_gqa

Step = Callable[[], Tensor]


def _step(model: nn.Module, inputs: Callable[[], Tensor]) -> Step:
    return lambda: model(inputs())


def strided(seq: int = 30, step: int = 4) -> Step:
    x = torch.randn(2, seq, 6)
    return _step(nn.Linear(6, 6), lambda: x[:, ::step].reshape(-1, 6))


def strided_evenly(seq: int = 32, step: int = 4) -> Step:
    return strided(seq, step)


def cropped(batch: int = 2, seq: int = 30, limit: int = 40) -> Step:
    x = torch.randn(batch, seq, 6)
    return _step(nn.Linear(6, 6), lambda: x[:, :limit].reshape(-1, 6))


def windows(seq: int = 50, size: int = 8, hop: int = 3) -> Step:
    x = torch.randn(2, seq)
    return _step(nn.Linear(size, 4), lambda: x.unfold(1, size, hop))


def grouped(heads: int = 8, dim: int = 5) -> Step:
    """Heads share fewer keys: a quotient of a quotient; nothing but the addition refuses other numbers of heads."""
    keys, x = max(1, heads // 4), torch.randn(3, heads, dim)
    model = nn.Linear(dim, keys * dim)

    def step() -> Tensor:
        shared = model(x[:, 0]).view(3, keys, dim).repeat_interleave(heads // keys, 1)
        out: Tensor = x + shared
        return out

    return step


@cache
def found(workload: Callable[..., Step]) -> Symbolic:
    names = workload.__annotations__.keys() - {"return"}
    return symbolic(workload, over=[name for name in workload.__code__.co_varnames if name in names])


@pytest.mark.parametrize(
    ("workload", "setting", "claimed"),
    [
        pytest.param(strided, {"step": 5}, True, marks=pytest.mark.slow),
        pytest.param(strided, {"step": 6}, True, marks=pytest.mark.slow),
        pytest.param(strided, {"seq": 32}, True, marks=pytest.mark.slow),
        pytest.param(strided, {"seq": 31}, True, marks=pytest.mark.slow),
        pytest.param(strided_evenly, {}, True, marks=pytest.mark.slow),
        pytest.param(strided_evenly, {"seq": 33}, True, marks=pytest.mark.slow),
        (cropped, {}, True),
        (cropped, {"seq": 10, "limit": 5}, True),
        (cropped, {"limit": 30}, True),
        pytest.param(cropped, {"limit": 29}, True, marks=pytest.mark.slow),
        pytest.param(windows, {"hop": 10}, True, marks=pytest.mark.slow),
        pytest.param(windows, {"hop": 25}, True, marks=pytest.mark.slow),
        pytest.param(windows, {"hop": 8}, True, marks=pytest.mark.slow),
        (grouped, {"heads": 10}, True),
        (grouped, {"heads": 15}, True),
        (grouped, {"heads": 40}, True),
    ],
)
def test_totals_are_right_where_sizes_meet(
    workload: Callable[..., Step], setting: dict[str, int], claimed: bool
) -> None:
    formulas = found(workload).formulas
    full = {**formulas.defaults, **setting}
    judged = verdicts(formulas, full, Truth(workload, full))
    assert [total for total, verdict in judged.items() if "wrong" in verdict] == []
    assert ("right" in judged.values()) is claimed


def test_a_meeting_is_a_threshold() -> None:
    """It names what changes there, and the region says which side is which."""
    formulas = found(strided).formulas
    assert "seq % step != 0" in map(str, formulas.region)
    assert "where seq % step == 0: aten.view appears in (outside)" in " ".join(map(str, formulas.thresholds))
    assert any("seq % step == 0" in map(str, other.region) for other in formulas.others)


def test_refused_settings_are_outside() -> None:
    """A quotient that must be exact is a condition although the workload's code never asks for its remainder."""
    formulas = found(grouped).formulas
    assert "heads % (floor(heads/4)) == 0" in map(str, formulas.region)
    for heads in (9, 11, 14, 18, 25):
        assert formulas.crossed({**formulas.defaults, "heads": heads}) is not None


def quotients(heads: int = 12, dim: int = 5) -> Step:
    keys = max(1, heads // 5)
    x = torch.randn(3, keys, dim)
    return _step(nn.Linear(dim, dim), lambda: x.repeat_interleave(heads // keys, 1))


@pytest.mark.slow
def test_a_quotient_of_quotients_has_no_value_at_1() -> None:
    """Where ``floor(heads/5)`` is 0 the formulas have no value: the peak is compared elsewhere."""
    formulas = found(quotients).formulas
    assert {"peak_bytes", "flops"} <= formulas.totals.keys()
    for heads in (12, 29, 77):
        full = {**formulas.defaults, "heads": heads}
        judged = verdicts(formulas, full, Truth(quotients, full))
        assert [total for total, verdict in judged.items() if "wrong" in verdict] == []


@pytest.mark.slow
def test_a_number_of_layers_is_told_from_a_meeting_of_two_sizes() -> None:
    over = ["batch", "seq", "hidden", "layers", "heads", "kv_heads", "vocab"]
    found = symbolic(llama_gqa, over=over)
    assert not found.held
    assert set(found.structural) == {"layers"}
    assert not any("layers" in threshold.condition.expr.symbols for threshold in found.thresholds)
    assert found.captures <= 60  # twice as many where the derivation is made again beyond a condition that is none


def test_an_empty_tensor_meets_nothing() -> None:
    assert not _is_multiple(symbol("batch"), symbol("batch") * 0)
    assert _is_multiple(symbol("batch") * 6, symbol("batch"))
