"""``tensortide.compare``: what it takes, what it refuses, and limits."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensortide
from tensortide.errors import MetricError, UnknownCost
from tensortide.measures.differences.compared import Compared
from tensortide.measures.differences.limits import Limit, Threshold, parse_limit, tried
from tensortide.measures.metric import Metric, Unit
from tensortide.measures.profiler import Profiler
from tensortide.measures.status import Entry, Status
from tensortide.timelines import timeline
from tests.graphs import Builder
from tests.measures.differences.models import side

UNITS: dict[str, Unit] = {"step_peak": "bytes", "step_time": "ns", "flops": "flops", "total_params": "amount"}


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("peak=+2%", Limit("peak=+2%", "step_peak", share=0.02)),
        ("step_peak = -0.5 %", Limit("step_peak = -0.5 %", "step_peak", share=-0.005)),
        ("peak=+100MiB", Limit("peak=+100MiB", "step_peak", amount=100 << 20)),
        ("peak=+1GB", Limit("peak=+1GB", "step_peak", amount=10**9)),
        ("time=+5ms", Limit("time=+5ms", "step_time", amount=5e6)),
        ("flops=+1.5G", Limit("flops=+1.5G", "flops", amount=1.5e9)),
        ("flops=+2TFLOP", Limit("flops=+2TFLOP", "flops", amount=2e12)),
        ("parameters=+0", Limit("parameters=+0", "total_params", amount=0.0)),
        ("peak_bytes=+2B", Limit("peak_bytes=+2B", "step_peak", amount=2)),
        ("step_ns=+5ms", Limit("step_ns=+5ms", "step_time", amount=5e6)),
    ],
)
def test_limits_are_read(text: str, limit: Limit) -> None:
    assert parse_limit(text, UNITS) == limit


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("peak=2%", "with a sign"),
        ("peak", "NAME="),
        ("peek=+2%", "did you mean peak"),
        ("peak=+2ms", "expected bytes"),
        ("peak=+2", r"^--threshold peak=\+2: 2 would be 2 bytes: 2MiB, or 2GiB\?"),
        ("flops_bytes=+2%", "there is no metric 'flops_bytes'"),
        ("time=+2", "expected a time"),
        ("flops=+2MiB", "expected FLOPs"),
        ("peak=+1..2%", r"^--threshold peak=\+1\.\.2%: expected a number, as 12\.5, not '1\.\.2'$"),
    ],
)
def test_what_is_no_limit_is_refused(text: str, message: str) -> None:
    with pytest.raises(MetricError, match=message):
        parse_limit(text, UNITS)


def test_a_malformed_share_is_refused_before_any_work() -> None:
    with pytest.raises(MetricError, match=r"not '1\.\.2'"):
        tensortide.compare("none.tide", "neither.tide", thresholds=["peak=+1..2%"])


def of_limit(limit: Limit, found: Compared) -> Threshold:
    (only,) = tried([limit], found.metrics, [one.letter for one in found.others])
    return only


def test_data_has_every_threshold_and_its_outcome() -> None:
    found = tensortide.compare(side(), side(blocks=5), side(), thresholds=["peak=+1%", "peak_bytes=+1GiB"])
    table = found.document()["comparison"].table("thresholds")
    assert table["threshold"] == ("peak=+1%",) * 2 + ("peak_bytes=+1GiB",) * 2
    assert (set(table["metric"]), table["letter"]) == ({"step_peak"}, ("B", "C") * 2)
    assert table["outcome"] == ("exceeded", "held", "held", "held")
    values = zip(table["reference"], table["value"], table["allowed"], table["outcome"], strict=True)
    assert all((value > allowed) is (outcome == "exceeded") for _, value, allowed, outcome in values)
    assert len(found.exceeded) == 1


def test_limits_hold_up_to_their_value() -> None:
    a, b = side(), side(blocks=5)
    found = tensortide.compare(a, b)
    before, after = a.memory.peak_bytes, b.memory.peak_bytes
    exact = Limit("", "step_peak", amount=after - before)
    assert of_limit(exact, found).outcome == "held"
    over = of_limit(Limit("", "step_peak", amount=after - before - 1), found)
    assert (over.outcome, over.letter, over.reference, over.value, over.allowed) == (
        *("exceeded", "B", before, after),
        after - 1,
    )
    less = Limit("", "step_peak", share=-0.01)
    assert [of_limit(less, one).outcome for one in (found, tensortide.compare(b, a))] == ["exceeded", "held"]


def test_more_is_better_where_the_metric_says_so() -> None:
    found = tensortide.compare(side(), side(batch=16))
    pair = found.metrics.pair("intensity")
    assert pair.numbers is not None
    assert pair.numbers[1] > pair.numbers[0]
    less, most = (Limit("", "intensity", share=share) for share in (-0.01, 9.0))
    back = tensortide.compare(side(batch=16), side())
    outcomes = [of_limit(*one).outcome for one in ((less, found), (less, back), (most, found))]
    assert outcomes == ["held", "exceeded", "exceeded"]


def test_a_limit_on_what_is_not_known_is_an_error() -> None:
    found = tensortide.compare(side(), side(), thresholds=["time=+1%"])
    with pytest.raises(MetricError, match="predict them"):
        _ = found.exceeded


def test_graphs_timelines_profilers_and_files_are_compared(tmp_path: Path) -> None:
    graph = side().graph
    tensortide.save(graph, tmp_path / "step.tide")
    profiler = Profiler(side().subject)
    profiler.compute_all()
    profiler.save(tmp_path / "kept.status.json")
    line = timeline(graph, durations_ns=[1000] * len(graph))
    found = tensortide.compare(
        graph, tmp_path / "step.tide", str(tmp_path / "step.tide"), line, profiler, tmp_path / "kept.status.json"
    )
    assert [one.letter for one in found.entrants] == [*"ABCDEF"]
    assert [step is None for step in found.steps] == [False, False, False, False, True]
    assert all(found.metrics.pair("flops", number).words == "equal" for number in range(5))
    assert found.entrants[3].status["step_time"].value == 1000 * len(graph)
    assert "No difference" in repr(found)


def test_models_are_compared_by_their_inference_forward() -> None:
    import torch
    from torch import nn

    profilers = []
    for wide in (16, 32):
        model = nn.Sequential(nn.Linear(8, wide), nn.ReLU(), nn.Linear(wide, 4))
        profilers.append(
            tensortide.Profiler(model, {"train": [(torch.rand(2, 8), torch.zeros(2))]}, name=f"wide {wide}")
        )
        profilers[-1].compute("flops")
    found = tensortide.compare(*profilers)
    (step,) = found.steps
    assert step is not None
    assert step.root.difference.flops == found.metrics.pair("flops").difference
    assert step.root.difference.parameters == 16 * (8 + 1 + 4)
    assert "wide 16 and wide 32 compared: all modules scale alike. Whole step: FLOPs" in repr(found)


def perceptron(wide: int) -> Profiler:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(8, wide), nn.ReLU(), nn.Linear(wide, 4))
    return Profiler(model, {"train": [(torch.rand(2, 8), torch.zeros(2))]}, name=f"wide {wide}")


def test_modules_are_compared_at_the_batch_size_of_the_metrics() -> None:
    profilers = [perceptron(16), perceptron(32)]
    for one in profilers:
        one.compute_all(batch_size=4)
    found = tensortide.compare(*profilers)
    (step,) = found.steps
    assert step is not None
    assert step.root.difference.flops == found.metrics.pair("flops").difference
    assert step.root.whole[0].flops == profilers[0]["flops"]
    profilers[1].compute("flops", batch_size=2)
    with pytest.raises(MetricError, match=r"^wide 32 has metrics at batch sizes 2 and 4: compute them at one"):
        tensortide.compare(*profilers)


def test_any_of_them_is_the_reference() -> None:
    found = tensortide.compare(side(), side(batch=16), side(blocks=5), reference=2, names=["one", "two", "three"])
    assert (found.base.name, [one.letter for one in found.others]) == ("three", ["A", "B"])
    assert [step.letters for step in found.steps if step] == [("C", "A"), ("C", "B")]


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(MetricError, match="at least two"):
        tensortide.compare(side())
    for other in (None, 7, perceptron(8).subject.model):
        with pytest.raises(
            MetricError, match=r"^compare takes Graphs, .*, not (None|a int|a Sequential) \(of a live mod"
        ):
            tensortide.compare(side(), other)  # type: ignore[arg-type]
    with pytest.raises(MetricError, match="there is no number 5"):
        tensortide.compare(side(), side(), reference=5)
    builder = Builder()
    builder.op([builder.storage(8)], [builder.storage(8, birth=0)], name="mylib.mix.default")
    with pytest.raises(UnknownCost):
        tensortide.compare(builder.graph(), side(), strict=True)


def test_metrics_beyond_the_default_set_are_shown_and_may_have_limits(tmp_path: Path) -> None:
    def saved(name: str, value: float) -> Path:
        entry = Entry(Metric("score[val]", "Score [val]", "number", "s", "higher"), value)
        return Status(name=name, kind="forward", entries={"score[val]": entry}).save(tmp_path / f"{name}.status.json")

    found = tensortide.compare(saved("a", 0.9), saved("b", 0.8), thresholds=["score[val]=-1%"])
    assert [one.limit.metric for one in found.exceeded] == ["score[val]"]
    assert "Score [val]" in found.document()["comparison"].table("metrics")["title"]
    third = tensortide.compare(side(), side(), saved("c", 0.7))  # a metric that the last one alone has
    assert third.metrics.pair("score[val]", 0).words == "not computed for the reference"
    assert "FLOPs" in third.document()["comparison"].table("metrics")["title"]
    with pytest.raises(MetricError, match="no metric 'score'"):
        tensortide.compare(saved("a", 0.9), saved("b", 0.8), thresholds=["score=-1%"])
