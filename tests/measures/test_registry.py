"""Registering metrics: who is bound to a name, what is refused, and that nothing is half done."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tensortide.errors import MetricError
from tensortide.measures.metric import Comparative, Metric
from tensortide.measures.registry import BadFunction, Conflict, MetricFunction, Registry, default_registry, metric


def function(*names: str, unit: Any = "amount", value: int = 1) -> MetricFunction:
    def compute(subject: object, batch_size: int = 1) -> dict[str, int]:
        return dict.fromkeys(names, value)

    return metric(*(Metric(name, name, unit, "") for name in names))(compute)


@pytest.mark.parametrize(
    ("old", "new", "wins", "warned"), [(False, False, "new", 1), (False, True, "new", 0), (True, False, "old", 0)]
)
def test_binding_of_a_taken_name(old: bool, new: bool, wins: str, warned: int) -> None:
    first, second, registry = function("a"), function("a"), Registry()
    registry.register(first, old)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert registry.register(second, new) is second
    assert registry["a"].function is (second if wins == "new" else first)
    assert len(caught) == warned
    assert all("a: compute replaces compute" in str(one.message) for one in caught)


def test_two_overrides_are_an_error_and_bind_nothing() -> None:
    registry = Registry()
    registry.register(function("a"), True)
    with pytest.raises(Conflict, match="both override a"):
        registry.register(function("b", "a"), True)
    assert issubclass(Conflict, RuntimeError)
    assert [*registry] == ["a"]


def test_a_name_with_another_unit_is_an_error_even_where_the_old_one_stays() -> None:
    registry = Registry()
    registry.register(function("a", unit="bytes"), True)
    with pytest.raises(Conflict, match="a of compute is in ns; that of compute is in bytes"):
        registry.register(function("a", unit="ns"))


def test_only_the_names_that_are_free_are_bound() -> None:
    kept, more, registry = function("a"), function("a", "b"), Registry()
    registry.register(kept, True)
    registry.register(more)
    assert registry["a"].function is kept
    assert registry["b"].function is more
    assert registry.siblings("b") == ("b",)


def test_signatures_that_are_refused() -> None:
    declare = metric(Metric("a", "A", "amount", ""))
    for bad, message in (
        (lambda subject, *rest: 1, "variadic parameters .rest."),
        (lambda subject, **rest: 1, "variadic parameters .rest."),
        (lambda subject, needed: 1, "needs needed"),
        (lambda: 1, "takes no argument"),
    ):
        with pytest.raises(BadFunction, match=message):
            declare(bad)
    assert issubclass(BadFunction, TypeError)
    with pytest.raises(BadFunction, match="none of them twice: a, a"):
        metric(Metric("a", "", "bytes", ""), Metric("a", "", "bytes", ""))(lambda subject: {})
    with pytest.raises(BadFunction, match="<lambda> declares no metrics"):
        Registry().register(lambda subject: 1)


def test_an_unknown_name_or_option_names_the_nearest() -> None:
    registry = Registry([function("flops")])
    with pytest.raises(ValueError, match=r"no metric 'flop'; did you mean flops"):
        registry["flop"]
    with pytest.raises(MetricError, match=r"option 'batch'; did you mean batch_size"):
        registry.check_options({"batch": 2}, registry.functions())


def test_rows_of_the_default_set_are_complete() -> None:
    registry = default_registry()
    for name in registry:
        one = registry[name].metric
        assert one.title
        assert one.description, name
        assert one.direction or one.name.startswith(("step_time_", "execution_runs"))
    assert {"flops", "macs", "total_params", "model_size", "activation_peak", "step_peak"} <= {*registry}
    assert len({registry[name].metric.title for name in registry}) == len(registry)


def test_comparatives_by_name() -> None:
    assert Comparative.of("RECIPROCAL") is Comparative.RECIPROCAL
    with pytest.raises(MetricError, match="there are DIFF, DIV, RECIPROCAL, NONE"):
        Comparative.of("times")
    assert Comparative.DIFF.of_values(3, 5) == -2
    assert Comparative.DIV.of_values(3, 4) == 0.75
    assert Comparative.RECIPROCAL.of_values(4, 3) == 0.75
    assert Comparative.DIV.of_values(3, 0) is Comparative.RECIPROCAL.of_values(0, 3) is None


@pytest.mark.parametrize(
    ("unit", "direction", "message"), [("tokens/s", "higher", "no unit"), ("ns", "up", "no direction")]
)
def test_a_metric_in_an_unknown_unit_or_direction_is_refused(unit: Any, direction: Any, message: str) -> None:
    with pytest.raises(MetricError, match=f"there is {message} .*which the metric speed has; there are "):
        Metric("speed", "Speed", unit, "s", direction)
