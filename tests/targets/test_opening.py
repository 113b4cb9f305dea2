"""A target is opened as the request asks, and what does not go with it is refused in one line."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tensortide.cost import count, explain, registry
from tensortide.errors import Doubtful, RequestError, TensortideError, WorkloadError
from tensortide.graph import GraphBuilder
from tensortide.graph.file import save
from tensortide.importers.door import resolve
from tensortide.request import options
from tensortide.targets.again import capture_again
from tensortide.targets.assumptions import assumed
from tensortide.targets.machines import machines_of, require_distinct
from tensortide.targets.opening import graph_of, opened, step_of, workload_of
from tensortide.targets.requests import CaptureRequest
from tests.graphs import path_of, stored

READS = """
import torch

def reads():
    weight = torch.nn.Parameter(torch.rand(4, 4))

    def step():
        loss = (weight @ torch.ones(4, 2)).sum()
        if loss.item() > 3:
            loss = loss * 2
        loss.backward()

    return step
"""
WARNS = """
import torch, warnings

def warns():
    def step():
        warnings.warn("odd layer")
        return torch.ones(2) + 1

    return step
"""
GIVEN: dict[str, Any] = {
    "set": ("batch=2",),
    "real": True,
    "first_step": True,
    "assume": ("train.py:4=2",),
    "rank": 0,
    "all_stages": True,
    "compiled": True,
    "step": "2",
    "keep_running": True,
    "fake": True,
    "patience": 3.0,
}
"""A value of each option that goes with some kinds of targets alone."""


@pytest.fixture
def targets(tmp_path: Path) -> dict[str, str]:
    """A target of each kind."""
    (tmp_path / "train.py").write_text("print('a script')\n")
    return {"workload": "mlp", "script": f"-- python {tmp_path / 'train.py'}", "file": str(path_of("mlp"))}


def test_an_option_of_other_targets_is_refused_and_named(targets: dict[str, str]) -> None:
    limited = {one.field.name: one for one in options(CaptureRequest) if one.opt.of and not one.opt.hidden}
    assert limited.keys() == GIVEN.keys()
    for name, one in limited.items():
        asked = CaptureRequest(**{name: GIVEN[name]})
        for kind, target in targets.items():
            if kind in one.opt.of:
                asked.require(resolve(target))
            else:
                with pytest.raises(RequestError, match=f"{one.name} goes with "):
                    opened(resolve(target), asked)


def test_options_of_importers_are_refused_for_what_they_do_not_read(targets: dict[str, str]) -> None:
    reading = dataclasses.replace(CaptureRequest().reading, train=True)  # type: ignore[call-arg] # of ONNX
    for kind in targets:
        with pytest.raises(RequestError, match="--train goes with a model in ONNX"):
            opened(resolve(targets[kind]), CaptureRequest(reading=reading))


def test_one_machine_is_asked_for_where_a_step_is_opened() -> None:
    with pytest.raises(RequestError, match="this takes a single --machine; tensortide time and fit take several"):
        graph_of("mlp", CaptureRequest(machines=("t4", "l4")))
    require_distinct(["t4", "l4"])
    with pytest.raises(RequestError, match="--machine t4 is given twice"):
        require_distinct(["t4", "l4", "t4"])
    with pytest.raises(WorkloadError, match="a target is missing"):
        resolve("")


def test_a_file_is_read_and_a_workload_captured_alike() -> None:
    asked = CaptureRequest(set=("batch=2", "hidden=8", "inputs=6", "layers=2"))
    assert graph_of(str(path_of("mlp")), CaptureRequest()).index.digest == stored("mlp").index.digest
    assert graph_of("mlp", asked).meta.hyperparameters["hidden"] == 8


def test_strictly_a_step_that_depends_on_what_was_assumed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(READS)
    found = resolve(f"{tmp_path / 'work.py'}:reads")
    asked = CaptureRequest()
    assert opened(found, asked).graph.meta.assumptions
    with pytest.raises(Doubtful, match="depend on what was assumed"):
        opened(found, asked, strict=True)
    with pytest.raises(TensortideError, match="ambiguous"):
        opened(resolve("mlp"), CaptureRequest(machines=("h100",)), strict=True)


def test_verbs_that_run_a_step_take_workloads_alone(targets: dict[str, str]) -> None:
    assert step_of(targets["workload"], "run").name == workload_of(targets["workload"], "run").name == "mlp"
    for kind in ("script", "file"):
        with pytest.raises(RequestError, match="run goes with a workload"):
            step_of(targets[kind], "run")


@pytest.mark.parametrize("text", ["4", "train.py=4", "train.py:x=4", "train.py:4=", "train.py:4=[1]", "=1"])
def test_what_is_no_assumption_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="--assume takes FILE:LINE=NUMBER"):
        assumed([text])


def test_assumptions_are_numbers_or_expressions() -> None:
    assert assumed(["a.py:4=128", "a.py:5=true", "a.py:6=0.5"]) == {"a.py:4": 128, "a.py:5": True, "a.py:6": 0.5}
    assert assumed(["a.py:4=batch*seq"], expressions=True) == {"a.py:4": "batch*seq"}


def test_several_of_this_machine_or_of_none_are_refused() -> None:
    with pytest.raises(RequestError, match="local is one machine"):
        machines_of("2xlocal")
    with pytest.raises(RequestError, match="there is no local:tpu"):
        machines_of("local:tpu")


def test_a_step_that_is_captured_again_repeats_no_warning_of_its_program(tmp_path: Path) -> None:
    (tmp_path / "warns.py").write_text(WARNS)
    found, asked = resolve(f"{tmp_path / 'warns.py'}:warns"), CaptureRequest()
    with pytest.warns(UserWarning, match="odd layer"):
        graph = opened(found, asked).graph
    again, _ = capture_again(found, asked)
    assert again is not None
    assert len(again({}, (), False)) == len(graph)  # a warning is an error in tests


ROW = """
[ops."com.acme::Mix"]
family = "contraction"
letters = "*k,kn"
operands = "x0 x1"
"""


def test_rows_of_a_file_price_ops_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.names()
    monkeypatch.setattr(registry, "_table", dict(registry._table))
    b = GraphBuilder("mixed")
    b.output(b.op("com.acme::Mix", b.input("x", (2, 3, 5)), b.parameter("w", (5, 7)), out=(2, 3, 7)))
    save(b.build(), tmp_path / "mixed.tide")
    (tmp_path / "ops.toml").write_text(ROW)
    (tmp_path / "wrong.toml").write_text(ROW.replace("contraction", "contractoin"))
    target = resolve(tmp_path / "mixed.tide")
    assert count(opened(target, CaptureRequest()).graph).coverage.missing
    with pytest.raises(TensortideError, match=r"wrong\.toml: com.acme::Mix: family: there is no 'contractoin'"):
        opened(target, CaptureRequest(rules=tmp_path / "wrong.toml"))
    asked = CaptureRequest(rules=tmp_path / "ops.toml")
    opened(target, asked)
    graph = opened(target, asked).graph  # a file is read once in a process
    assert count(graph, strict=True).total.macs == 2 * 3 * 5 * 7
    assert (explain(graph, 0).rule, explain(graph, 0).family) == ("com::acme::Mix", "contraction")
