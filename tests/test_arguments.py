"""Nonsense for an argument of a public function is one error that names the argument, never one of Python's."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.errors import OutputError, PlanError, RequestError
from tests.graphs.files import stored

GRAPH = stored("mlp")


@pytest.mark.parametrize(
    ("name", "values", "call"),
    [
        ("time_limit_s", ("x", -1, nan, True), lambda value: tensortide.plan(GRAPH, 0.9, time_limit_s=value)),
        ("time_limit_s", ("x", -1, nan), lambda value: tensortide.footprint(GRAPH, time_limit_s=value)),
        ("work_limit", ("x", -1, nan), lambda value: tensortide.footprint(GRAPH, work_limit=value)),
        ("time_limit_s", ("x", -1, nan), lambda value: tensortide.frontier(GRAPH, time_limit_s=value)),
        ("top", ("x", None, 3.5, -1, True), lambda value: tensortide.report(GRAPH, top=value)),
        ("depth", ("x", None, 3.5, -1), lambda value: tensortide.report(GRAPH, depth=value)),
        ("rounding", (5, "x"), lambda value: tensortide.timeline(GRAPH, rounding=value)),
        ("workspace", (5, "x", None), lambda value: tensortide.timeline(GRAPH, workspace=value)),
        ("durations_ns", (5, "x"), lambda value: tensortide.timeline(GRAPH, durations_ns=value)),
        ("playback", (5, "x"), lambda value: tensortide.timeline(GRAPH, playback=value)),
        ("durations", (5, "x"), lambda value: tensortide.liveness(GRAPH, durations=value)),
        ("op", (None, [], 3.5, b"x", True), lambda value: tensortide.explain(GRAPH, value)),
        ("resolver", ("nope", 5), lambda value: tensortide.count(GRAPH, resolver=value)),
        ("names", (5, "no"), lambda value: tensortide.compare(GRAPH, GRAPH, names=value)),
        ("a name of a step", (1,), lambda value: tensortide.compare(GRAPH, GRAPH, names=[value, value])),
        ("check", ("x", None), lambda value: tensortide.budget("1GiB", check=value)),
        ("offload_dir", (5, True), lambda value: tensortide.budget("1GiB", offload_dir=value)),
        ("step", ("x", nan, 2.5, True), lambda value: tensortide.record(step=value)),
        ("a condition", (None, 5), tensortide.legal),
        ("depth", (None, 5, "12"), lambda value: tensortide.legal(depth=value)),
    ],
)
def test_what_is_no_such_argument_is_named(name: str, values: tuple[Any, ...], call: Callable[[Any], Any]) -> None:
    for value in values:
        with pytest.raises(RequestError, match=rf"^{name} is .*, not "):
            call(value)


@pytest.mark.parametrize("path", [None, 5, "\0", b"x"])
def test_what_is_no_path_cannot_be_written(path: Any) -> None:
    with pytest.raises(OutputError, match="it is no path of a file"):
        tensortide.save(GRAPH, path)
    with pytest.raises(OutputError, match="it is no path of a file"):
        tensortide.timeline(GRAPH).page().save(path)


def test_a_fraction_above_one_is_no_budget() -> None:
    """As of ``0.8 * peak``, which would be as many times the peak."""
    with pytest.raises(PlanError, match="bytes are a whole number"):
        tensortide.plan(GRAPH, 3.5)


def test_what_is_right_is_taken(tmp_path: Path) -> None:
    import numpy as np

    times = np.ones(len(GRAPH), np.int64)
    assert tensortide.timeline(GRAPH, durations_ns=times, workspace=times).peak_bytes  # type: ignore[arg-type]
    assert tensortide.liveness(GRAPH, durations=times)  # type: ignore[arg-type]
    assert tensortide.explain(GRAPH, np.int64(0)) == tensortide.explain(GRAPH, 0)  # type: ignore[arg-type]
    assert tensortide.footprint(GRAPH, time_limit_s=float("inf"), work_limit=10).lower_bytes
    tensortide.save(GRAPH, tmp_path / "step.tide")
