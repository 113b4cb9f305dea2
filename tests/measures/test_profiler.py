"""The profiler: what is computed, kept, given back, cloned, saved and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortide.errors import MetricError, Unavailable
from tensortide.graph import Graph, Phase, Role
from tensortide.measures.comparison import compare_statuses
from tensortide.measures.metric import Metric, Missing
from tensortide.measures.profiler import Profiler
from tensortide.measures.registry import BadFunction, Registry, UnknownMetric, metric
from tensortide.measures.status import load_status
from tensortide.measures.subject import StepSubject
from tests.graphs import Builder


def a_step(nbytes: int = 8) -> Graph:
    """One forward op that saves ``nbytes``, and one backward op that reads them."""
    made = Builder()
    weight = made.storage(4, Role.PARAMETER)
    saved = made.storage(nbytes, Role.ACTIVATION, 0, 2)
    gradient = made.storage(4, Role.GRADIENT, 1)
    made.op([weight], [saved])
    made.op([saved], [gradient], phase=Phase.BACKWARD)
    return made.graph()


def profiler(*functions: Any, nbytes: int = 8) -> Profiler:
    return Profiler(StepSubject(a_step(nbytes), name="step"), registry=Registry(functions) if functions else None)


def counting() -> tuple[Any, list[dict[str, int]]]:
    """A metric function of two metrics, and the options of its calls."""
    calls: list[dict[str, int]] = []

    @metric(Metric("a", "A", "amount", "a"), Metric("b", "B", "amount", "b"))
    def both(subject: object, batch_size: int = 1, scale: int = 10) -> dict[str, int]:
        calls.append({"batch_size": batch_size, "scale": scale})
        return {"a": batch_size, "b": batch_size * scale}

    return both, calls


def test_a_value_is_kept_by_its_options() -> None:
    function, calls = counting()
    found = profiler(function)
    assert [found.compute("a", batch_size=n) for n in (1, 2, 1)] == [1, 2, 1]
    assert found.compute("b", batch_size=2) == 20
    assert len(calls) == 2
    assert found["a"] == 1
    assert found.compute("b", recompute=True, batch_size=2) == 20
    assert len(calls) == 3


def test_every_function_gets_the_options_that_it_names() -> None:
    function, calls = counting()

    @metric(Metric("c", "C", "amount", "c"))
    def other(subject: object, split: str = "test") -> int:
        return len(split)

    assert profiler(function, other).compute_all(scale=3, split="train") == {"a": 1, "b": 3, "c": 5}
    assert calls == [{"batch_size": 1, "scale": 3}]
    with pytest.raises(UnknownMetric, match=r"option 'splits'; did you mean split\?"):
        profiler(function, other).compute_all(splits="train")
    with pytest.raises(UnknownMetric, match="option 'scale'"):
        profiler(function, other).compute("c", scale=3)


def test_what_is_not_available_is_kept_with_its_reason() -> None:
    calls = []

    @metric(Metric("a", "A", "amount", "a"))
    def never(subject: object) -> int:
        calls.append(1)
        raise Unavailable("no data")

    found = profiler(never)
    assert found.compute("a") == found.compute("a") == Missing("no data")
    assert calls == [1]


def test_a_function_that_fails_is_named_and_the_others_go_on() -> None:
    function, _ = counting()

    @metric(Metric("c", "C", "amount", "c"))
    def broken(subject: object) -> int:
        return 1 // 0

    found = profiler(broken, function)
    with pytest.raises(MetricError, match="c: broken raised ZeroDivisionError"):
        found.compute("c")
    with pytest.warns(UserWarning, match="broken raised ZeroDivisionError"):
        values = found.compute_all()
    assert values["b"] == 10
    assert isinstance(values["c"], Missing)


@pytest.mark.parametrize("result", [{"a": 1}, 3, {"b": 1}, {"a": 1, "b": [1]}])
def test_results_that_were_not_declared(result: Any) -> None:
    @metric(Metric("a", "A", "amount", "a"), Metric("b", "B", "amount", "b"))
    def wrong(subject: object) -> Any:
        return result

    with pytest.raises(BadFunction, match="wrong"):
        profiler(wrong).compute("a")


def test_the_status_is_like_a_dict_of_copies() -> None:
    function, _ = counting()
    found = profiler(function)
    assert found.values() == [None, None]
    assert found.get("a", 7) == 7
    assert found.to_dict() == {}
    found.compute("a")
    assert found.items() == [("a", 1), ("b", 10)]
    assert "b" in found
    assert len(found) == 2
    found.load_from_dict({"a": 5, "z": 1}, ignore_unknown=True)
    assert found.to_dict() == {"a": 5}
    with pytest.raises(UnknownMetric, match="'z'"):
        found.load_from_dict({"z": 1})
    assert found.to_dict() == {"a": 5}
    found.reset()
    assert found.to_dict() == {}
    with pytest.raises(UnknownMetric, match="'y'"):
        found.get("y")


def test_registering_forgets_what_the_name_had() -> None:
    function, _ = counting()
    found = profiler(function)
    found.compute("a")

    @metric(Metric("a", "A", "amount", "a"))
    def replaced(subject: object) -> int:
        return 42

    found.register(replaced, override=True)
    assert found.to_dict() == {"b": 10}
    assert found.compute("a") == 42


def test_a_clone_has_a_registry_of_its_own() -> None:
    function, _ = counting()
    found = profiler(function)
    found.compute("a")
    other = found.clone()
    assert other.to_dict() == found.to_dict()
    assert other.name == "step"
    other.register(metric(Metric("c", "C", "amount", "c"))(lambda subject: 1))
    assert "c" not in found
    other.reset()
    assert found["a"] == 1
    with pytest.raises(Unavailable, match="no model"):
        found.clone(model=None)


def test_a_status_survives_its_file(tmp_path: Path) -> None:
    found = profiler()
    found.compute_all()
    path = found.save(tmp_path / "a.status.json")
    other = profiler(nbytes=16)
    other.load(path)
    assert other.to_dict() == found.to_dict()
    assert other.status.entries == found.status.entries
    path.write_text(path.read_text()[:200])
    with pytest.raises(MetricError, match="is damaged"):
        other.load(path)
    with pytest.raises(MetricError, match="cannot read"):
        other.load(tmp_path / "missing.json")


def test_the_peak_of_a_step_is_the_sum_of_its_roles() -> None:
    values = profiler(nbytes=100).compute_all()
    parts = [value for name, value in values.items() if name.startswith("step_peak_")]
    assert values["step_peak"] == sum(v for v in parts if isinstance(v, int)) == 108
    assert values["saved_activations"] == 100


def test_a_comparison_says_which_is_better_in_words() -> None:
    one, other = profiler(nbytes=100), profiler(nbytes=200)
    one.compute_all()
    other.compute_all()
    found = one.compare(other)
    saved = found.pair("saved_activations")
    assert (saved.difference, saved.ratio, saved.change) == (100, 2, 1)
    assert (saved.verdict, saved.words) == ("worse", "2.00x larger")
    assert found.pair("ops").words == "equal"
    assert other.compare(one).pair("saved_activations").verdict == "better"
    backward = one.compare(other, reference=1).pair("saved_activations")
    assert backward.words == "2.00x smaller"
    missing = found.pair("execution_time")
    assert (missing.verdict, missing.difference) == ("", None)
    assert "no live model" in missing.words
    with pytest.raises(MetricError, match="at least two"):
        compare_statuses([one.status])
    with pytest.raises(MetricError, match="profilers and saved statuses, not int"):
        one.compare(3)  # type: ignore[arg-type]
    with pytest.raises(MetricError, match="no number 2 among 2"):
        one.compare(other, reference=2)


def test_a_metric_that_one_lacks_is_absent_and_not_refused() -> None:
    one, other = profiler(), profiler()
    one.compute("flops")
    other.compute("total_params")
    found = one.compare(other)
    assert found.pair("flops").words == "not computed for the other"
    assert found.pair("total_params").words == "not computed for the reference"


def test_figures_at_two_batch_sizes_are_not_compared() -> None:
    function, _ = counting()
    one, other = profiler(function), profiler(function)
    one.compute("a", batch_size=2)
    other.compute("a", batch_size=4)
    assert one.compare(other).pair("a").words == "at batch sizes 2 and 4"
    other.compute("a", batch_size=2)
    assert one.compare(other).pair("a").words == "equal"


def test_parts_of_a_metric_have_names_of_their_own() -> None:
    @metric(Metric("score", "Score", "number", "score"))
    def evaluated(subject: object, split: str = "test") -> dict[str, float]:
        return {"score": 1.5, "score[val]": 2.5}

    found = profiler(evaluated)
    assert found.compute("score") == 1.5
    assert found["score[val]"] == 2.5
    assert found.status["score[val]"].metric.title == "Score [val]"
    assert found.to_dict() == {"score": 1.5, "score[val]": 2.5}
    assert found.clone().to_dict() == found.to_dict()
    found.reset()
    with pytest.raises(UnknownMetric, match=r"score\[val\]"):
        found.get("score[val]")


def test_what_a_function_is_registered_by_is_returned() -> None:
    class Declared:
        metrics = (Metric("d", "D", "amount", "d"),)
        __name__ = "declared"

        def __call__(self, subject: object, scale: int = 2) -> int:
            return scale

    declared, found = Declared(), profiler()
    assert found.register(declared) is declared
    assert found.compute("d", scale=5) == 5


def test_a_loaded_status_is_kept_by_its_own_options(tmp_path: Path) -> None:
    function, _ = counting()
    one, other = profiler(function), profiler(function)
    one.compute("a", batch_size=16)
    other.load(one.save(tmp_path / "a.status.json"))
    assert other["a"] == 16
    assert other.compute("a") == 1
    assert other.compute("a", batch_size=16) == 16


def test_costs_that_leave_ops_out_decide_nothing_that_they_may_not() -> None:
    @metric(Metric("flops", "FLOPs", "flops", "f", lower_bound=True), Metric("unknown_ops", "Unknown", "count", "u"))
    def costs(subject: object, flops: int = 10, unknown: int = 0) -> dict[str, int]:
        return {"flops": flops, "unknown_ops": unknown}

    def pair(mine: tuple[int, int], theirs: tuple[int, int]) -> Any:
        found = [profiler(costs), profiler(costs)]
        for one, (flops, unknown) in zip(found, (mine, theirs), strict=True):
            one.compute("flops", flops=flops, unknown=unknown)
        return found[0].compare(found[1]).pair("flops")

    assert pair((10, 0), (5, 1)).words == "unknown: ops without a rule"
    assert pair((10, 0), (5, 1)).verdict == ""
    assert pair((10, 0), (20, 1)).verdict == "worse"  # at least 20
    assert pair((10, 1), (5, 0)).verdict == "better"
    assert pair((10, 1), (20, 1)).verdict == ""
    assert pair((10, 0), (20, 0)).words == "2.00x larger"


def test_options_are_told_apart_by_their_contents() -> None:
    @metric(Metric("a", "A", "number", "a"))
    def total(subject: object, weights: Any = ()) -> float:
        return float(sum(weights))

    found, weights = profiler(total), np.zeros(5000)
    assert found.compute("a", weights=weights) == 0
    weights[2500] = 7
    assert found.compute("a", weights=weights) == 7


def test_a_value_that_json_does_not_have_is_saved_as_its_reason(tmp_path: Path) -> None:
    @metric(Metric("a", "A", "number", "a"))
    def diverged(subject: object) -> float:
        return float("nan")

    found = profiler(diverged)
    found.compute("a")
    assert load_status(found.save(tmp_path / "a.status.json"))["a"].value == Missing("the value was nan")
