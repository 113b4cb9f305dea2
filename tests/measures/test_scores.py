"""Evaluation functions agree with counts by hand, sample by sample, however the data fall into batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tensortide.errors import MetricError
from tensortide.measures.data import Data
from tensortide.measures.forward_pass import ForwardPass
from tensortide.measures.scores import SCORES, accuracy, mean_loss, misclassification, top_k


class Given(nn.Module):
    """Returns its input, so that a test decides on the scores; dropout would spoil them in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.9)
        self.gradients: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.gradients.append(torch.is_grad_enabled())
        return self.drop(x)  # type: ignore[no-any-return]


def loader(x: Any, y: Any, batch_size: int = 4) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.as_tensor(x), torch.as_tensor(y)), batch_size)


def hits(rows: list[list[float]], labels: list[int], k: int) -> int:
    """Labels among the first k classes, by plain Python."""
    found = 0
    for row, label in zip(rows, labels, strict=True):
        found += label in sorted(range(len(row)), key=lambda c: (-row[c], c))[:k]
    return found


SCORED = st.integers(1, 11).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(st.integers(-3, 3).map(float), min_size=4, max_size=4), min_size=n, max_size=n),
        st.lists(st.integers(0, 3), min_size=n, max_size=n),
    )
)


@given(SCORED, st.integers(1, 12))
def test_every_sample_weighs_the_same(drawn: tuple[list[list[float]], list[int]], batch_size: int) -> None:
    rows, labels = drawn
    data, model, n = loader(rows, labels, batch_size), Given(), len(labels)
    assert accuracy(model, data) == pytest.approx(100 * hits(rows, labels, 1) / n)
    assert misclassification(model, data) == pytest.approx(100 * (n - hits(rows, labels, 1)) / n)
    assert top_k(model, data, k=(1, 2, 9)) == {
        "top-1": pytest.approx(100 * hits(rows, labels, 1) / n),
        "top-2": pytest.approx(100 * hits(rows, labels, 2) / n),
        "top-9": 100,
    }
    assert not any(model.gradients)
    assert model.training
    assert model.drop.training


@given(SCORED)
def test_one_hot_labels_are_classes(drawn: Any) -> None:
    rows, labels = drawn
    x, y = torch.tensor(rows), torch.tensor(labels)
    hot = nn.functional.one_hot(y, 4)
    for given_labels in (hot, hot.float()):
        assert top_k(Given(), loader(x, given_labels), k=(1, 2)) == top_k(Given(), loader(x, y), k=(1, 2))


def test_a_ragged_last_batch_is_no_batch_like_the_others() -> None:
    """Four right of four, then none of one: 20 % wrong, where the mean of the batches is 50 %."""
    data = loader(torch.eye(5)[:, :4], [0, 1, 2, 3, 3], 4)
    assert misclassification(Given(), data) == pytest.approx(20)
    assert accuracy(Given(), data) == pytest.approx(80)


@pytest.mark.parametrize("label_shape", [(5,), (5, 1)])
@pytest.mark.parametrize("output_shape", [(5,), (5, 1)])
def test_one_column_is_a_logit(label_shape: tuple[int, ...], output_shape: tuple[int, ...]) -> None:
    x, y = torch.tensor([-1.0, 2.0, 0.0, 3.0, -2.0]), torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0])
    data = [(x.reshape(output_shape), y.reshape(label_shape))]
    assert misclassification(Given(), data) == pytest.approx(40)  # the third and the fourth
    assert top_k(Given(), data, k=(1, 2)) == {"top-1": pytest.approx(60), "top-2": 100}


def test_classes_of_sequences_lie_along_the_last_axis() -> None:
    x = torch.zeros(2, 3, 3)  # batch, positions, classes
    x[0, :, 1] = x[1, :, 2] = 1
    y = torch.tensor([[1, 1, 0], [2, -100, 2]])
    assert accuracy(Given(), [(x, y)], sequence=True) == pytest.approx(100 * 4 / 6)
    assert accuracy(Given(), [(x, y)], sequence=True, ignore=-100) == pytest.approx(100 * 4 / 5)
    assert accuracy(Given(), [(x.transpose(1, 2), y)]) == pytest.approx(100 * 4 / 6)


def test_the_mean_loss_is_that_of_the_samples() -> None:
    x, y = torch.arange(10.0).reshape(10, 1), torch.zeros(10, 1)
    means: Callable[..., Any] = nn.functional.l1_loss
    data = loader(x, y)
    assert mean_loss(Given(), data, loss=means) == pytest.approx(4.5)
    sums = nn.L1Loss(reduction="sum")
    assert mean_loss(Given(), data, loss=sums, summed=True) == pytest.approx(4.5)
    both = mean_loss(Given(), data, loss=lambda out, y: {"a": means(out, y), "b": 2 * means(out, y).item()})
    assert both == pytest.approx(13.5)
    with pytest.raises(MetricError, match="a scalar, not 4 numbers"):
        mean_loss(Given(), data, loss=lambda out, y: (out - y).abs())


def test_a_transform_sees_inputs_and_labels() -> None:
    seen: list[Any] = []

    def swap(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        seen.append((tuple(x.shape), tuple(y.shape)))
        return x.flip(1), 1 - y

    data = loader([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1], 2)
    assert accuracy(Given(), data) == accuracy(Given(), data, transform=swap) == pytest.approx(100 * 2 / 3)
    assert seen == [((2, 2), (2,)), ((1, 2), (1,))]


class Named(nn.Module):
    def forward(self, *, x: Tensor, extra: Tensor) -> dict[str, Tensor]:
        return {"loss": extra, "logits": x + extra[:, None]}


def test_a_transform_of_several_inputs_gets_all() -> None:
    def double(x: dict[str, Tensor], y: Tensor) -> Any:
        return {name: 2 * value for name, value in x.items()}, y

    batch = {"x": torch.eye(3), "extra": torch.zeros(3), "labels": torch.tensor([0, 1, 0]), "id": "text"}
    data = Data([batch], ForwardPass({"x": "x", "extra": "extra"}))
    assert accuracy(Named(), data, transform=double, target="labels") == pytest.approx(100 * 2 / 3)
    with pytest.raises(MetricError, match="any of the elements 'labels', 'id'"):
        accuracy(Named(), data)
    with pytest.raises(MetricError, match="no element 'label'"):
        accuracy(Named(), data, target="label")


def test_a_model_of_sequences_gets_no_further_axis() -> None:
    class Shapes(nn.LSTM):
        def forward(self, x: Tensor) -> Any:  # type: ignore[override]
            assert x.dim() == 3
            return super().forward(x)[0]

    assert (
        accuracy(Shapes(3, 4, batch_first=True), [(torch.rand(2, 5, 3), torch.zeros(2, 5).long())], sequence=True) >= 0
    )


def test_what_cannot_be_evaluated_says_why() -> None:
    x, y = torch.zeros(4, 3), torch.zeros(4).long()
    for wrong, text in (
        ([(x, y[:3])], "scores 4 positions of a batch, which has 3 labels"),
        (iter([]), "no samples to evaluate"),
        ((x,), "an evaluation needs labels"),
        ([("text", y)], "not a str"),
    ):
        with pytest.raises((MetricError, AttributeError, TypeError), match=text):
            accuracy(Given().eval() if isinstance(wrong, tuple) else nn.Identity(), wrong)
    with pytest.raises(MetricError, match="from 1, not 0"):
        top_k(Given(), [(x, y)], k=0)
    with pytest.raises(MetricError, match="no device 'tpu'"):
        accuracy(Given(), [(x, y)], device="tpu")


def test_no_function_remembers_a_call() -> None:
    data = loader(torch.eye(6), range(6))
    assert top_k(Given(), data, k=2).keys() == {"top-2"}
    assert top_k(Given(), data).keys() == {"top-1", "top-5"}
    assert accuracy(Given(), data) == accuracy(Given(), data) == 100


def test_every_function_has_a_direction() -> None:
    assert {function.__name__ for function in SCORES} == {"misclassification", "accuracy", "top_k", "mean_loss"}
    assert all(score.direction for score in SCORES.values())
