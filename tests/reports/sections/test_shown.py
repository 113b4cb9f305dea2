"""Results show themselves: on a terminal, in a notebook, and in one line."""

from __future__ import annotations

import importlib
import io
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

import tensortide
from tensortide.formulas import DOMAINS, Symbolic, project, solve, sweep
from tensortide.shown import Shown
from tensortide.timelines import diff, timeline
from tests.formulas.samples import transformer, word_lm
from tests.timelines.test_events import three_ops


def differing() -> Any:
    graph = three_ops()
    return diff(timeline(graph, durations_ns=[1, 2, 3]), timeline(graph, durations_ns=[2, 2, 5]))


RESULTS: dict[str, Any] = {
    "sweep": lambda: sweep(transformer(), {"batch": [1, 2]}),
    "solution": lambda: solve(transformer(), "batch", "peak_bytes <= 24GiB"),
    "projection": lambda: project(word_lm(), DOMAINS["word_lm"], "h", batch="b", samples_per_step="b*s"),
    "difference": differing,
    "symbolic": lambda: Symbolic(formulas=transformer(), rows=()),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_shows_itself(name: str) -> None:
    result = RESULTS[name]()
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(result)
    assert len(out.getvalue().splitlines()) > 4
    assert result._repr_html_().startswith("<iframe")
    line = repr(result)
    assert line.startswith(f"<{type(result).__name__} ")
    assert len(line) < 200
    assert "\n" not in line


def shown_classes(of: type[Any] = Shown) -> Iterator[type[Any]]:
    for one in of.__subclasses__():
        yield from (one, *shown_classes(one))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch imports
def test_every_result_is_among_these() -> None:
    for module in pkgutil.walk_packages(tensortide.__path__, "tensortide."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {one for one in shown_classes() if one.__module__.startswith("tensortide.")}
    assert ours - {type(made()) for made in RESULTS.values()} == set()
