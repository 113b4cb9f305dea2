"""The importer that CONTRIBUTING.md shows is complete: written down as it stands, it reads files and prices them."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tensortide.importers
from tensortide.cost import count
from tensortide.cost.registry import _table as rules
from tensortide.errors import TraceError
from tensortide.graph import guessed_trips, unrolled
from tensortide.importers.table import Importer
from tensortide.timelines import timeline

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
NET = "x = input 8 784\nh = dense x 256\nrepeat {}\nh = relu h\nend\ny = dense h 10\n"


@pytest.fixture
def importer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Importer]:
    """The shown package, in a folder of its own."""
    blocks = re.findall(r"```python\n# src/tensortide/importers/(layers/\w+\.py)\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    (tmp_path / "layers").mkdir()
    for name, code in blocks:
        (tmp_path / name).write_text(code)
    (tmp_path / "layers/__init__.py").write_text('"""Texts of layers."""\n')
    monkeypatch.setattr(tensortide.importers, "__path__", [*tensortide.importers.__path__, str(tmp_path)])
    importlib.import_module("tensortide.importers.layers.rules")
    found = importlib.import_module("tensortide.importers.layers.importer").IMPORTER
    assert isinstance(found, Importer)
    yield found
    for name in [name for name in sys.modules if name.startswith("tensortide.importers.layers")]:
        del sys.modules[name]
    for name in [name for name in rules if name.startswith("layers::")]:
        del rules[name]


def test_the_shown_importer_reads_and_prices(importer: Importer, tmp_path: Path) -> None:
    path = tmp_path / "net"
    path.write_text(NET.format(3))
    assert importer.recognizes(path)
    graph = importer.read(path, importer.options()).graph
    counted = count(graph, strict=True)
    assert counted.total.macs == 8 * 784 * 256 + 8 * 256 * 10
    assert counted.total.cost.elementwise_flops == 3 * 8 * 256
    assert timeline(unrolled(graph)).peak_bytes > 4 * (784 * 256 + 256 * 10)
    path.write_text(NET.format("?"))
    assert guessed_trips(importer.read(path, importer.options()).graph) == {"repeat": 1}


def test_the_shown_importer_names_the_wrong_line(importer: Importer, tmp_path: Path) -> None:
    path = tmp_path / "net"
    path.write_text("x = input 8 784\nh = dense z 256\n")
    with pytest.raises(TraceError, match=r"net, line 2: no layer \('z'\): 'h = dense z 256'"):
        importer.read(path, importer.options())
    path.write_text("hello\n")
    assert not importer.recognizes(path)
