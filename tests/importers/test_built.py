"""Workload functions that return objects of a framework: who decides that, and what is said if it goes wrong."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.errors import WorkloadError
from tensortide.graph import GraphBuilder
from tensortide.importers import built, table
from tensortide.importers.door import Built, resolve
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options, no_file
from tensortide.recorder.target import Workload

TOY = '''
class Model:
    """An object of a framework."""
    def __init__(self, width):
        self.width = width
'''
WORKLOADS = """
import toyframework as tf
from toyframework import Model

class Wrapped(Model):
    pass

def helper(width):
    return tf.Model(width)

def direct(width=8):
    return tf.Model(width)

def through(width=8):
    return helper(width)

def inherited(width=8):
    return Wrapped(width)

def late(width=8):
    import toyframework
    return toyframework.Model(width)

def fails(width=8):
    model = tf.Model(width)
    raise RuntimeError("no such layer")

def number(width=8):
    return (tf.Model(width), 3)

class Called(Model):
    def __call__(self, x):
        return x

MADE = Called(8)

def other(width=8):
    def step():
        raise AssertionError("nobody calls it here")
    return step
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A framework, workloads that use it, and an importer of its objects."""
    (tmp_path / "toyframework.py").write_text(TOY)
    (tmp_path / "uses_toy.py").write_text(WORKLOADS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def convert(model: Any, options: Options) -> Imported:
        b = GraphBuilder("toy")
        b.output(b.op("aten.relu.default", b.input("x", (model.width,)), out=(model.width,)))
        return Imported(b.build())

    toy = Importer(
        "toy", "a model of the toy framework", no_file, convert, Options,
        lambda made: type(made).__name__ in ("Model", "Wrapped", "Called"), convert, ("toyframework",),
    )  # fmt: skip
    known = table.importers()
    for module in (built, sys.modules["tensortide.importers.door"]):
        monkeypatch.setattr(module, "importers", lambda: (*known, toy))
    yield tmp_path
    for name in ("toyframework", "uses_toy"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["direct", "through", "inherited", "late"])
def test_a_function_that_uses_a_framework_may_return_its_objects(name: str) -> None:
    found = resolve(f"uses_toy.py:{name}")
    assert isinstance(found, Built)
    assert found.importer.name == "toy"
    graph = tensortide.open(f"uses_toy.py:{name}", hyperparameters={"width": 5}).graph
    assert graph.tensors[0].shape == (5,)
    assert graph.meta.workload == f"uses_toy.py:{name}"
    assert graph.meta.hyperparameters == {"width": 5}


def test_a_function_that_uses_none_is_a_workload_as_ever() -> None:
    assert isinstance(resolve("uses_toy.py:other"), Workload)


def test_what_the_function_raises_is_one_message_with_its_line() -> None:
    with pytest.raises(WorkloadError, match=r"RuntimeError: no such layer\n  at .*uses_toy.py:\d+: raise"):
        tensortide.open("uses_toy.py:fails")


def test_what_nobody_converts_is_named() -> None:
    with pytest.raises(WorkloadError, match=r"returns a tuple of Model, int, .* a model of the toy framework"):
        tensortide.open("uses_toy.py:number")


def test_hyperparameters_are_checked_as_those_of_a_step_are() -> None:
    found = resolve("uses_toy.py:direct")
    assert isinstance(found, Built)
    assert built.settings_of(found.workload, ["width=7", "trips.while=3"]) == {"width": 7, "trips.while": 3}
    with pytest.raises(WorkloadError, match="no hyperparameter 'depth'"):
        built.settings_of(found.workload, ["depth=7"])


def test_what_the_function_does_not_take_is_a_symbol_where_objects_leave_sizes_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[dict[str, int]] = []

    @dataclass(frozen=True)
    class Sizes(Options):
        symbols: Mapping[str, int] = field(default_factory=dict)

    def convert(model: Any, options: Sizes) -> Imported:
        seen.append(dict(options.symbols))
        b = GraphBuilder("toy")
        b.output(b.op("aten.relu.default", b.input("x", (4,)), out=(4,)))
        return Imported(b.build())

    toy = next(importer for importer in sys.modules["tensortide.importers.door"].importers() if importer.name == "toy")
    opened = replace(toy, options=Sizes, convert=convert, open_sizes=True)
    for module in (built, sys.modules["tensortide.importers.door"]):
        monkeypatch.setattr(module, "importers", lambda: (opened,))
    found = resolve("uses_toy.py:direct")
    assert isinstance(found, Built)
    settings = built.settings_of(found.workload, ["width=7", "batch=3"])
    step = found.read(settings)
    assert (seen, step.graph.meta.hyperparameters) == ([{"batch": 3}], {"width": 7})
    whole = resolve("uses_toy.py:MADE")  # the object itself
    assert isinstance(whole, Built)
    whole.read(built.settings_of(whole.workload, ["width=2"]))
    assert seen[1] == {"width": 2}


@pytest.mark.parametrize("framework", ["keras", "tensorflow"])
def test_functions_that_use_keras_or_tensorflow_may_return_their_objects(framework: str, tmp_path: Path) -> None:
    (tmp_path / f"uses_{framework}.py").write_text(
        f"def make():\n    import {framework}\n    return {framework}.made()\n"
    )
    assert isinstance(resolve(f"uses_{framework}.py:make"), Built)
    sys.modules.pop(f"uses_{framework}", None)


def test_formulas_capture_whatever_the_function_returns() -> None:
    found = resolve("uses_toy.py:direct")
    assert isinstance(found, Built)
    graph = built.captured(found.workload.function, hyperparameters={"width": 3})
    assert graph.tensors[0].shape == (3,)


def test_the_project_has_an_importer_for_jax_that_needs_none() -> None:
    names = {entry.name for entry in importlib.metadata.entry_points(group=table.GROUP)}
    (jax,) = [importer for importer in table.importers() if importer.name == "jax"]
    assert "jax" in names
    assert not jax.accepts((len, ("no array of JAX",)))
    assert "jax" not in sys.modules
