"""An evaluation is a metric function: options by name, one metric per split and result, everything restored."""

from __future__ import annotations

import functools
import inspect
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tensortide.errors import MetricError, Unavailable
from tensortide.measures.data import Data
from tensortide.measures.evaluation import Evaluation, normalized
from tensortide.measures.metric import Comparative, Missing
from tensortide.measures.scores import accuracy, mean_loss, top_k


class Subject:
    """A model with splits of one, two and three batches."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))

    def loader(self, split: str) -> Any:
        return [(torch.ones(2, 2), torch.zeros(2))] * ("test", "val", "train").index(split) + [
            (torch.ones(2, 2), torch.zeros(2))
        ]


def batches(model: Any, loader: Any) -> int:
    """How many batches there are."""
    assert isinstance(loader, Data)
    assert not model.training
    assert not torch.is_grad_enabled()
    return len(loader)


def values(found: Any, *names: str) -> list[Any]:
    return [found[name] for name in names]


def test_any_function_is_evaluated_on_the_split_that_is_asked_for() -> None:
    evaluation, subject = Evaluation(batches), Subject()
    assert evaluation(subject)["eval_metric"] == 1
    assert evaluation(subject, split="val")["eval_metric"] == 2
    assert subject.model.training
    assert subject.model[1].training
    assert evaluation.__name__ == "batches"


def test_several_splits_have_a_metric_each() -> None:
    found = Evaluation(batches)(Subject(), split=("val", "train"))
    assert values(found, "eval_metric[val]", "eval_metric[train]") == [2, 3]
    assert {"inference_time[val]", "inference_time[train]"} <= found.keys()
    assert isinstance(found["eval_metric"], Missing)
    assert "eval_metric[val], eval_metric[train]" in found["eval_metric"].reason
    evaluation = Evaluation(batches, split=("test", "val"))
    assert [metric.name for metric in evaluation.metrics] == [
        *("eval_metric[test]", "inference_time[test]"),
        *("eval_metric[val]", "inference_time[val]"),
    ]
    assert values(evaluation(Subject()), "eval_metric[test]", "eval_metric[val]") == [1, 2]
    alone = evaluation(Subject(), split="val")
    assert alone["eval_metric[val]"] == 2
    assert isinstance(alone["eval_metric[test]"], Missing)
    with pytest.raises(MetricError, match="one split at least"):
        evaluation(Subject(), split=())


def test_the_inference_time_is_the_wall_time_of_the_whole_evaluation() -> None:
    def slow(model: Any, loader: Any) -> float:
        time.sleep(0.02)
        return 1.0

    found = Evaluation(slow)(Subject())["inference_time"]
    assert isinstance(found, int)
    assert 20e6 <= found < 20e9


@pytest.mark.parametrize(
    ("result", "key", "number"),
    [
        (3, "", 3),
        (0.5, "any", 0.5),
        (np.float32(0.25), "", 0.25),
        (torch.tensor([2.0]), "", 2.0),
        ({"x": 1}, "", 1),
        ({"x": 1}, "y", 1),
        ({"x": 1, "y": torch.tensor(2)}, "y", 2),
    ],
)
def test_results_become_one_number(result: Any, key: str, number: float) -> None:
    found = normalized(result, key)
    assert found == number
    assert isinstance(found, int | float)


@pytest.mark.parametrize(
    ("result", "key", "text"),
    [
        ({"x": 1, "y": 2}, "z", "no result 'z'; there are 'x', 'y'"),
        ({"x": 1, "y": 2}, "", r"several results: .*; there are 'x', 'y'"),
        ({}, "x", "there are none"),
        ("0.5", "", "not a str"),
        (None, "", "not a NoneType"),
        (torch.zeros(2), "", "not a Tensor"),
        ({"x": [1]}, "", "not a list"),
    ],
)
def test_other_results_are_refused(result: Any, key: str, text: str) -> None:
    with pytest.raises(MetricError, match=text):
        normalized(result, key)


def scores(model: Any, loader: Any, *, scale: int = 1, shift: int = 0) -> dict[str, float]:
    return {"main": 1.0 * scale + shift, "other": 2.0 * scale + shift}


def test_secondary_results_are_metrics_too() -> None:
    with pytest.raises(ValueError, match="no evaluation function yet"):
        Evaluation().add_secondary("other")
    first = Evaluation(scores, key="main", unit="points", direction="higher")
    evaluation = first.add_secondary("other").add_secondary("main", "share", "again", "reciprocal", "lower")
    assert len(first.metrics) == 2
    by_name = {metric.name: metric for metric in evaluation.metrics}
    other, again, main = by_name["other"], by_name["main"], by_name["eval_metric"]
    assert (other.title, other.comparative, other.direction) == ("Eval: other (points)", Comparative.DIFF, "higher")
    assert (again.title, again.unit, again.description) == ("Eval: main", "share", "again")
    assert (again.comparative, again.direction) == (Comparative.RECIPROCAL, "lower")
    assert (main.title, main.unit, main.comparative) == ("Evaluation metric (points)", "number", Comparative.DIFF)
    assert values(evaluation(Subject(), scale=3), "eval_metric", "other", "main") == [3, 6, 3]
    for key in ("other", "eval_metric", "inference_time"):
        with pytest.raises(ValueError, match="already"):
            evaluation.add_secondary(key)
    with pytest.raises(MetricError, match="no result 'third'"):
        first.add_secondary("third")(Subject())
    with pytest.raises(MetricError, match="returned a int, which has no result 'third'"):
        Evaluation(batches).add_secondary("third")(Subject())


def test_options_are_those_that_the_function_names() -> None:
    def options(evaluation: Evaluation) -> dict[str, Any]:
        return {name: p.default for name, p in [*inspect.signature(evaluation).parameters.items()][1:]}

    assert options(Evaluation(scores)) == {"split": "test", "scale": 1, "shift": 0}
    assert options(Evaluation(scores, split="val", options={"scale": 5})) == {"split": "val", "scale": 5, "shift": 0}
    assert Evaluation(scores, "main", options={"scale": 5})(Subject(), shift=1)["eval_metric"] == 6
    assert options(Evaluation(mean_loss))["loss"] is inspect.Parameter.empty

    def anything(model: Any, loader: Any, **options: Any) -> int:
        return len(options)

    evaluation = Evaluation(anything, options={"a": 1, "b": 2})
    assert options(evaluation) == {"split": "test", "a": 1, "b": 2}
    assert evaluation(Subject(), a=3)["eval_metric"] == 2
    with pytest.raises(MetricError, match="scores takes no option 'scala'; it takes split, scale, shift"):
        Evaluation(scores, options={"scala": 1})
    with pytest.raises(MetricError, match="an option called split"):
        Evaluation(lambda model, loader, split: 1)


def test_our_own_functions_bring_unit_and_direction() -> None:
    metrics = {each: Evaluation(each).metrics[0] for each in (accuracy, top_k, mean_loss, batches)}
    assert [metric.direction for metric in metrics.values()] == ["higher", "higher", "lower", ""]
    assert metrics[accuracy].title == "Evaluation metric (%)"
    bound = Evaluation(functools.partial(mean_loss, loss=nn.functional.cross_entropy))
    assert (bound.__name__, bound.direction) == ("mean_loss", "lower")
    found = Evaluation(top_k, key="top-1").add_secondary("top-5")(Subject(), k=(1, 5))
    assert found["top-5"] == 100


def test_what_a_function_changes_is_restored() -> None:
    def careless(model: Any, loader: Any) -> float:
        model.train()
        model.half()
        torch.set_grad_enabled(True)
        torch.rand(3)
        raise ZeroDivisionError

    subject = Subject()
    before = torch.get_rng_state()
    subject.model[1].eval()
    with pytest.raises(ZeroDivisionError):
        Evaluation(careless)(subject)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.is_grad_enabled()
    assert [module.training for module in subject.model.modules()] == [True, True, False]
    assert {p.dtype for p in subject.model.parameters()} == {torch.float32}


def test_without_a_function_there_is_a_reason() -> None:
    assert [metric.name for metric in Evaluation().metrics] == ["eval_metric", "inference_time"]
    with pytest.raises(Unavailable, match=r"register Evaluation\(function\)"):
        Evaluation()(Subject())
