"""A divided step equals the whole one, or is refused with the op, or says which op computes a rank's own samples."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensortide import capture
from tensortide.errors import DegreesError
from tensortide.parallelism import Degrees, per_rank
from tests.parallelism.divided import Divided

BATCH, FEATURES = 8, 6
ORDER = [3, 1, 2, 0, 7, 6, 5, 4]


def along_batch(name: str, y: torch.Tensor) -> torch.Tensor:
    """The values that the op ``name`` makes along the batch."""
    made = y.diff(dim=0) if name == "diff" else getattr(y, name)(0)
    values: torch.Tensor = made if isinstance(made, torch.Tensor) else made.values
    return values


OPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: functools.partial(along_batch, name) for name in ("flip", "cumsum", "cumprod", "softmax", "amax", "var")},
    **{
        name: functools.partial(along_batch, name)
        for name in ("std", "logsumexp", "mean", "sum", "prod", "log_softmax")
    },
    **{name: functools.partial(along_batch, name) for name in ("logcumsumexp", "sort", "max", "median", "cummax")},
    **{name: functools.partial(along_batch, name) for name in ("mode", "diff")},
    "roll": lambda y: y.roll(1, 0),
    "ranked rows": lambda y: y[y.sum(1).argsort()],
    "topk": lambda y: y.topk(4, 0).values,
    "kthvalue": lambda y: y.kthvalue(2, 0).values,
    "quantile": lambda y: y.quantile(0.5, 0),
    "largest of all": lambda y: y.max(),
    "norm": lambda y: y.norm(),
    "norms of features": lambda y: F.normalize(y, dim=0),
    "norms of samples": lambda y: F.normalize(y, dim=1),
    "centred": lambda y: y - y.mean(0),
    "scaled by all": lambda y: y / y.abs().max(),
    "above the mean": lambda y: torch.where(y > y.mean(), y, 0 * y),
    "a slice": lambda y: y[1:],
    "a half": lambda y: y[: BATCH // 2],
    "one": lambda y: y[0],
    "every other": lambda y: y[::2],
    "halves swapped": lambda y: torch.cat([y[4:], y[:4]]),
    "halves multiplied": lambda y: torch.mul(*y.chunk(2)),
    "repeated": lambda y: y.repeat(2, 1),
    "each repeated": lambda y: y.repeat_interleave(2, 0),
    "two of each": lambda y: torch.stack([y, y]).flatten(0, 1),
    "another order": lambda y: y[torch.tensor(ORDER)],
    "another order, selected": lambda y: y.index_select(0, torch.tensor(ORDER)),
    "shuffled": lambda y: y[torch.randperm(BATCH)],
    "gathered": lambda y: y.gather(0, torch.zeros(BATCH, FEATURES, dtype=torch.long)),
    "scattered": lambda y: torch.zeros_like(y).scatter(0, torch.zeros(BATCH, FEATURES, dtype=torch.long), y),
    "summed in groups": lambda y: torch.zeros(3, FEATURES).index_add(0, torch.arange(BATCH) % 3, y),
    "masked": lambda y: y[y.sum(1) > 0],
    "similarities": lambda y: y @ y.t(),
    "products of features": lambda y: y.t() @ y,
    "covariance": lambda y: torch.cov(y.t()),
    "distances": lambda y: torch.cdist(y, y),
    "differences": lambda y: y[:, None] - y[None],
    "a triangle": lambda y: y.tril(),
    "patches": lambda y: y.unfold(0, 2, 2),
    "pairs of rows": lambda y: y.reshape(4, 12).softmax(1),
    "padded": lambda y: F.pad(y, (0, 0, 1, 0)),
    "a convolution": lambda y: F.conv1d(y.t()[None], torch.ones(1, FEATURES, 3), padding=1),
    "attention": lambda y: F.scaled_dot_product_attention(y[None], y[None], y[None]),
    "triplets": lambda y: F.triplet_margin_loss(y, y.roll(1, 0), y.flip(0)),
    "root of a mean": lambda y: (y**2).mean().sqrt(),
    "square of a mean": lambda y: y.mean() ** 2,
    "product of means": lambda y: y.mean() * y.abs().mean(),
    "ratio of sums": lambda y: y.sum() / y.abs().sum(),
    "mean of some": lambda y: (y * (y > 0)).sum() / (y > 0).sum(),
    "sum of means": lambda y: (2 * y.mean() + y.abs().mean()) / 3,
    "element by element": torch.tanh,
}
REFUSED = frozenset(
    (
        *("flip", "cumsum", "cumprod", "softmax", "prod", "logcumsumexp", "sort", "cummax", "mode", "diff", "roll"),
        *("kthvalue", "quantile", "a slice", "a half", "one", "every other", "halves swapped", "halves multiplied"),
        *("another order", "another order, selected", "gathered", "scattered", "similarities", "distances"),
        *("differences", "a triangle", "padded", "a convolution", "attention", "triplets"),
    )
)
"""Ops that need the samples of other ranks."""
EXACT = frozenset(
    (
        *("log_softmax", "norms of samples", "repeated", "each repeated", "two of each", "masked", "patches"),
        *("pairs of rows", "element by element"),
    )
)
"""Ops that compute each sample alone, or that ranks compute together. All others are of each rank's own samples."""
SMALL = ("flip", "var", "norms of samples", "another order", "square of a mean")


def step_of(op: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Any]:
    """A workload whose loss has ``op`` of the results of a layer."""

    def workload() -> Callable[[], None]:
        torch.manual_seed(0)
        model, x = nn.Linear(5, FEATURES), torch.randn(BATCH, 5)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step() -> None:
            optimizer.zero_grad()
            y = model(x)
            made = op(y)
            weighted = made * (y if made.shape == y.shape else made.detach().cos())
            (weighted.mean() if made.dim() else made).backward()
            optimizer.step()

        return step

    return workload


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in SMALL)) for n in OPS])
def test_what_is_not_the_whole_step_is_refused_or_said(name: str) -> None:
    graph = capture(step_of(OPS[name]), real=True)
    if name in REFUSED:
        with pytest.raises(DegreesError, match=r"cannot be divided: aten\."):
            per_rank(graph, Degrees(data=2))
        return
    divided = Divided(graph, data=2)
    said = any("own samples" in text for step in divided.steps.values() for text in step.remarks)
    assert said is (name not in EXACT)
    if not said:
        divided.assert_equal()


@pytest.mark.parametrize(
    ("name", "op", "why"),
    [
        ("flip", "aten.flip", "rearranges or mixes samples"),
        ("another order", "aten.index", "by their numbers in the whole batch"),
        ("similarities", "aten.mm", "pairs every sample"),
    ],
)
def test_what_needs_others_samples_is_refused_with_the_op(name: str, op: str, why: str) -> None:
    with pytest.raises(DegreesError, match=rf"{op}.*{why}"):
        per_rank(capture(step_of(OPS[name]), real=True), Degrees(data=2))


def test_inputs_that_a_step_rearranges_are_each_ranks_own() -> None:
    def workload() -> Callable[[], None]:
        model, x = nn.Linear(5, FEATURES), torch.randn(BATCH, 5)

        def step() -> None:
            model(0.7 * x + 0.3 * x.flip(0)).mean().backward()

        return step

    made = per_rank(capture(workload, real=True), Degrees(data=2))
    assert made.micro_batch == BATCH // 2
    (remark,) = made.remarks
    assert "aten.flip" in remark
    assert "own samples" in remark


def test_samples_of_one_input_beside_those_of_another_are_refused() -> None:
    def workload() -> Callable[[], None]:
        queries, passages = nn.Linear(5, FEATURES), nn.Linear(7, FEATURES)
        x, others = torch.randn(BATCH, 5), torch.randn(BATCH, 7)

        def step() -> None:
            F.cross_entropy(queries(x) @ passages(others).t(), torch.arange(BATCH)).backward()

        return step

    with pytest.raises(DegreesError, match=r"aten\.mm.*pairs every sample"):
        per_rank(capture(workload, real=True), Degrees(data=2))


@pytest.mark.parametrize("options", [{"weight": torch.arange(1.0, FEATURES + 1)}, {"ignore_index": 3}, {}], ids=str)
def test_a_mean_over_weights_of_targets_is_of_a_ranks_own_samples(options: dict[str, Any]) -> None:
    def workload() -> Callable[[], None]:
        model, x, targets = nn.Linear(5, FEATURES), torch.randn(BATCH, 5), torch.randint(0, FEATURES, (BATCH,))

        def step() -> None:
            F.cross_entropy(model(x), targets, **options).backward()

        return step

    remarks = per_rank(capture(workload, real=True), Degrees(data=2)).remarks
    assert any("aten.nll_loss_forward" in each and "own samples" in each for each in remarks) is bool(options)
