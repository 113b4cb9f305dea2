"""Cells of a notebook: code of ``__main__`` whose source only the line cache knows."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CELLS = """
import torch
from torch import nn
import tensortide

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.last(self.first(x).relu())

model = Net()
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(4, 8)

def step():
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss

def build(batch=4, hidden=16):
    net, data = nn.Linear(8, hidden), torch.randn(batch, 8)
    return lambda: net(data)
"""


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Run a cell as a kernel of IPython does; its names are the result."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    names: list[str] = []

    def run(source: str) -> dict[str, Any]:
        names.append(f"/tmp/ipykernel_1/{len(names)}.py")
        linecache.cache[names[-1]] = (len(source), None, source.splitlines(True), names[-1])
        exec(compile(source, names[-1], "exec"), vars(main))
        return vars(main)

    run(CELLS)
    yield run
    for name in names:
        del linecache.cache[name]


@pytest.mark.parametrize(
    "code",
    [
        "graph = tensortide.capture(step)",
        "graph = tensortide.capture(model, x, loss='mean', optimizer='adam')",
        "with tensortide.record() as recording:\n    for _ in range(3):\n        step()\ngraph = recording.graph",
        "watched = tensortide.record(step)\nfor _ in range(3):\n    watched()\ngraph = watched.recording.graph",
    ],
)
def test_a_model_of_a_cell_is_captured(code: str, cell: Callable[[str], dict[str, Any]]) -> None:
    graph = cell(code)["graph"]
    assert [m.path for m in graph.modules] == ["", "first", "last"]
    assert {(Path(s.file).parent.name, s.code) for s in graph.sources} >= {
        ("ipykernel_1", "return self.last(self.first(x).relu())")
    }
    assert [s.nbytes for s in graph.storages if s.role.value == "input"] == [4 * 8 * 4]


@pytest.mark.parametrize(
    "result",
    [
        *("graph", "tensortide.count(graph)", "tensortide.timeline(graph)", "tensortide.liveness(graph)"),
        *("tensortide.footprint(graph)", "tensortide.report(graph)", "recording", "tensortide.explain(graph, 'addmm')"),
        pytest.param("tensortide.symbolic(build, over=['batch'])", marks=pytest.mark.slow),
    ],
)
def test_a_result_is_shown(result: str, cell: Callable[[str], dict[str, Any]]) -> None:
    cell("recording = tensortide.record()\nwith recording:\n    step(), step(), step()\ngraph = recording.graph")
    assert cell(f"shown = {result}")["shown"]._repr_html_().startswith("<div")


def test_a_recording_that_has_nothing_to_show_is_one_line(cell: Callable[[str], dict[str, Any]]) -> None:
    recording = cell("with tensortide.record() as recording:\n    step()")["recording"]
    assert recording._repr_html_() is None
    assert repr(recording).startswith("<Recording: step 2 was not reached")
