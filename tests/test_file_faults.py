"""Files that make Python itself fail, by nesting and by numbers that it does not hold: each is one line of its name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import tensortide
from tensortide.errors import GraphFileError, TensortideError
from tensortide.file_faults import reading
from tensortide.importers.door import File
from tensortide.importers.imported import Imported
from tensortide.importers.table import importers
from tensortide.measures.checks.baseline import load_baseline
from tensortide.measures.checks.suite import load_checks
from tensortide.placements.nets.net import read_net
from tensortide.plans.model import load_plan
from tensortide.studies.placement.config import read_config
from tensortide.timing.clusters import load_cluster, read_device_graph
from tensortide.timing.kineto import read_trace
from tensortide.timing.listed import from_list
from tensortide.timing.own import own_device
from tests.examples.tiny import TINY

DEEP, DIGITS = 100_000, 5_000
LISTS, OBJECTS = "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP
NUMBER = "9" * DIGITS
LAYER = '{"name": "n", "layers": {"a": {"type": "Input", "tensor": [%s]}}}'
READERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "execution trace": (tensortide.open, '{"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": [%s]}'),
    "trace": (tensortide.open, '{"schemaVersion": 1, "traceEvents": [%s]}'),
    "trace of times": (read_trace, '{"schemaVersion": 1, "traceEvents": [%s]}'),
    "device": (own_device, '{"name": "mine", "memory_gbytes_per_s": %s}'),
    "network": (read_net, LAYER),
    "device graph": (read_device_graph, '{"comm_channels": [], "devices": [%s]}'),
    "cluster": (load_cluster, '{"devices": [{"device": "a100", "count": %s}], "links": []}'),
    "configuration": (read_config, '{"optimizer": "ga", "optimizer_args": {"generations": %s}}'),
    "baseline": (load_baseline, '{"format": "tensortide baseline", "version": 2, "of": %s}'),
    "plan": (load_plan, '{"format": "tensortide plan/1", "steps": %s}'),
    "checks": (load_checks, "[check.a]\ntarget = 'x'\nassert = %s\n"),
}


def only_line(call: Callable[[], object], path: Path) -> str:
    """The message of the error that ``call`` raises: one line that names the file, of a length to be read."""
    with pytest.raises(TensortideError) as caught:
        call()
    text = str(caught.value)
    assert path.name in text
    assert "\n" not in text
    assert len(text) < 400
    assert "sys." not in text  # advice to programs
    return text


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("content", ["lists", "objects", "digits"])
def test_a_file_that_python_cannot_hold_is_one_line_that_names_it(kind: str, content: str, tmp_path: Path) -> None:
    read, form = READERS[kind]
    path = tmp_path / ("checks.toml" if kind == "checks" else "hostile.json")
    nested = {"lists": "[" * 3000 + "]" * 3000, "objects": "{a=" * 3000 + "1" + "}" * 3000}
    shown = {"lists": LISTS, "objects": OBJECTS, "digits": NUMBER} | (nested if kind == "checks" else {})
    path.write_text(form % shown[content])
    only_line(lambda: read(path), path)


@pytest.mark.parametrize("content", [LISTS, OBJECTS, NUMBER, LISTS[:DEEP]], ids=["lists", "objects", "digits", "cut"])
@pytest.mark.parametrize("read", [read_net, load_cluster, read_device_graph, read_config, own_device, load_plan])
def test_so_is_one_that_is_nothing_else(read: Callable[[Path], object], content: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.json"
    path.write_text(content)
    only_line(lambda: read(path), path)


def failing(error: BaseException, path: Path, options: object) -> NoReturn:
    del path, options
    raise error


FAULTS = (RecursionError("too deep"), OverflowError("too large"), ZeroDivisionError("by zero"), MemoryError())


@pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
def test_whatever_an_importer_fails_with_names_the_file(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "model.any"
    importer = dataclasses.replace(importers()[0], read=functools.partial(failing, error))
    with pytest.raises(GraphFileError) as caught:
        File(path, importer).read()
    assert str(caught.value).startswith(f"{path} cannot be read: ")


def test_an_error_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    def read(path: Path, options: object) -> Imported:
        raise ValueError("a fault of the program")

    with pytest.raises(ValueError, match="a fault of the program"):
        File(tmp_path / "a", dataclasses.replace(importers()[0], read=read)).read()
    with pytest.raises(TensortideError, match=r"^its own$"), reading("a"):
        raise TensortideError("its own")


def test_a_sniff_that_fails_leaves_a_file_to_others(tmp_path: Path) -> None:
    def sniff(path: Path) -> Any:
        raise RecursionError

    assert not dataclasses.replace(importers()[0], sniff=sniff).recognizes(tmp_path / "a")


def test_a_list_of_times_with_a_number_that_python_does_not_hold_is_one_line(tmp_path: Path) -> None:
    graph = tensortide.capture("mlp", hyperparameters=TINY["mlp"])
    path = tmp_path / "times.jsonl"
    for text in ('{"op": %s, "ns": 1}', '{"op": 1, "ns": %s}'):
        path.write_text(text % NUMBER)
        only_line(lambda: from_list(graph, path), path)
