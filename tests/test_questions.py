"""Questions as functions: they take any target and the options of the command line; their answers show themselves."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tensortide
from tensortide.errors import ExitStatus, GraphError, PlanError, RequestError, TensortideError
from tensortide.measures.request import MetricsRequest
from tensortide.questions import QUESTIONS, question
from tensortide.reports.render.json import render_json
from tensortide.request import options
from tensortide.studies.fit.request import FitRequest
from tensortide.studies.fit.results import Fit, FitOnMachines
from tensortide.targets.keywords import keyword_of, request_of
from tests.cli.command import run
from tests.toy_request import Toy


def dots() -> tensortide.Graph:
    """A step of two ops, one of which has no rule of ours."""
    b = tensortide.GraphBuilder("dots")
    x, y, z = b.input("x", (12, 6)), b.input("y", (6, 12)), b.input("z", (12, 4))
    b.output(b.op("aten.relu", b.op("aten.linalg_multi_dot.default", [x, y, z], out=(12, 4)), out=(12, 4)))
    return b.build()


def small(batch: int = 2) -> Any:
    model, inputs = torch.nn.Linear(8, 8), torch.ones(batch, 8)
    return lambda: model(inputs).sum().backward()


def macs(found: Any) -> Any:
    """The products that the metrics of a step have."""
    return found.metrics.entries["macs"].value


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_a_question_has_a_signature_and_a_help_of_its_request(name: str) -> None:
    function = getattr(tensortide, name)
    found = inspect.signature(function).parameters
    assert next(iter(found)) == "target"
    assert not {one.kind for one in found.values()} & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    for one in found.values():
        assert one.name in function.__doc__
        assert one.annotation is not inspect.Parameter.empty
    assert (function.__module__, function.__qualname__) == ("tensortide.questions", name)


@pytest.mark.parametrize("name", sorted(tensortide.__all__))
def test_every_public_function_says_what_it_does(name: str) -> None:
    found = getattr(tensortide, name)
    assert found.__doc__
    if inspect.isfunction(found):
        assert inspect.signature(found).parameters


@pytest.mark.slow
def test_dir_and_star_have_the_public_names_and_nothing_else() -> None:
    code = "import tensortide\nprint(*dir(tensortide))\nfrom tensortide import *\nprint(open.__module__, fit.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, starred = done.stdout.splitlines()
    assert names.split() == sorted([*tensortide.__all__, "__version__"])
    assert starred == "tensortide.importers.door fit"


def test_dir_has_the_public_names_and_nothing_else() -> None:
    assert dir(tensortide) == sorted([*tensortide.__all__, "__version__"])


def test_options_have_the_names_of_the_command_line() -> None:
    names = {keyword_of(one) for one in options(Toy)}
    assert {"size", "clock"} <= names
    assert "sizes" not in names
    assert "from_" in inspect.signature(tensortide.time).parameters
    seen: list[Toy] = []
    asked = question("toy", Toy, seen.append)
    with pytest.raises(RequestError, match=r"toy has no option 'clok'; did you mean clock\?"):
        asked("x", clok="wall")
    with pytest.raises(RequestError, match=r"toy takes a Toy, not a MetricsRequest"):
        asked(MetricsRequest(target="mlp"))
    with pytest.raises(RequestError, match="toy takes one target"):
        asked("x", "y")
    assert not seen


def test_a_function_and_a_ready_request_are_the_same_question() -> None:
    asked = request_of("metrics", MetricsRequest, {"target": "mlp", "set": {"batch": 2}, "machine": "t4"})
    assert isinstance(asked, MetricsRequest)
    assert (asked.capture.set, asked.capture.machines) == (("batch=2",), ("t4",))
    found = tensortide.metrics(asked)
    assert found.metrics.entries == tensortide.metrics("mlp", set={"batch": 2}, machine="t4").metrics.entries
    with pytest.raises(RequestError, match="long: a request has all options"):
        tensortide.metrics(asked, long=True)
    with pytest.raises(RequestError, match="metrics needs target"):
        tensortide.metrics()


def test_a_target_is_whatever_has_a_step(tmp_path: Path) -> None:
    graph = tensortide.capture(small)
    tensortide.save(graph, tmp_path / "x.tide")
    targets = [small, graph, tensortide.open(graph), tmp_path / "x.tide", str(tmp_path / "x.tide")]
    found = {macs(tensortide.metrics(each)) for each in targets}
    assert len(found) == 1
    assert macs(tensortide.metrics(small, set={"batch": 4})) == 2 * found.pop()
    assert tensortide.open(graph).graph is graph
    with pytest.raises(TensortideError, match="small is a Graph: settings go with a workload"):
        tensortide.metrics(graph, set={"batch": 4})


@pytest.mark.parametrize("nothing", [None, 3, [], object(), int])
def test_what_has_no_step_is_one_clear_error(nothing: object) -> None:
    with pytest.raises(TensortideError, match=r"is nothing that tensortide opens(.|\n)*It takes a target, a Graph"):
        tensortide.metrics(nothing)


def test_an_option_that_has_another_name_elsewhere_is_told() -> None:
    for name, other in (("gpu", "machine"), ("hyperparameters", "set")):
        with pytest.raises(RequestError, match=f"fit has no option '{name}'; did you mean {other}\\?"):
            tensortide.fit("mlp", **{name: "t4"})


GIVEN: dict[str, Any] = {"set": {"batch": 4}, "machine": "t4"}


@pytest.mark.parametrize("target", [small, f"{__name__}:small"])
def test_functions_of_a_step_take_any_target_with_the_options_of_its_capture(target: Any) -> None:
    assert tensortide.count(target, **GIVEN).total.macs == 512
    assert "fits T4" in str(tensortide.report(target, **GIVEN))
    assert tensortide.check(target, ["macs == 512", "time <= 1s"], **GIVEN).holds
    found = tensortide.compare(target, target, set=("B:batch=4",), names=["mine"], device="cuda")
    assert [one.status.entries["macs"].value for one in found.entrants] == [256, 512]
    assert found.entrants[0].name == "mine"


def test_a_plan_is_of_any_target_too() -> None:
    graph = tensortide.capture(small, hyperparameters={"batch": 4}, machine="t4")
    planned = tensortide.plan(small, "80%", work_limit=1e-3, **GIVEN)
    assert planned.budget_bytes == tensortide.plan(graph, "80%", work_limit=1e-3).budget_bytes


def test_functions_of_a_step_take_a_file_and_what_was_opened(tmp_path: Path) -> None:
    graph, path = tensortide.capture(small, hyperparameters={"batch": 4}, machine="t4"), tmp_path / "x.tide"
    tensortide.save(graph, path)
    for one in (path, str(path), tensortide.open(path)):
        assert tensortide.count(one).total == tensortide.count(graph).total
    assert tensortide.report(path)["verdict"] == tensortide.report(graph, machine="t4")["verdict"]


@pytest.mark.parametrize(
    "given", [["report"], ["fit"], ["check", "--assert", "peak <= 1GiB"], ["metrics"]], ids=" ".join
)
def test_a_function_prints_what_the_verb_prints_but_what_comes_next(
    given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dots.tide"
    tensortide.save(dots(), path)
    name, *more = given
    printed = [line for line in run(capsys, name, str(path), *more).splitlines() if not line.startswith("next: ")]
    found = str(getattr(tensortide, name)(path, *more[1:]))
    assert "\n".join(printed).strip() == found.strip()


def test_options_that_do_not_go_together_are_one_clear_error() -> None:
    with pytest.raises(RequestError, match=r"report has no option 'mashine'; did you mean machine\?"):
        tensortide.report(small, mashine="t4")
    with pytest.raises(TensortideError, match="machines goes with opened steps, set with targets"):
        tensortide.compare(small, small, machines=["t4", "t4"], set={"batch": 4})
    with pytest.raises(TensortideError, match="set goes with a target, hyperparameters with"):
        tensortide.check(small, "peak <= 1GiB", set={"batch": 4}, hyperparameters={"batch": 4})


def test_of_a_graph_fit_says_why_actions_are_not_available() -> None:
    graph = tensortide.capture(small, machine="t4")
    found = tensortide.fit(graph, machine="t4")
    assert isinstance(found, Fit)
    assert found.status is ExitStatus.HOLDS
    assert {one.reason for one in found.outcomes} >= {
        "a Graph has no step to capture again: give the function that it was captured from"
    }
    both = tensortide.fit(graph, machine=("t4", "l4"))
    assert isinstance(both, FitOnMachines)
    assert [one.machine for one in both.each] == ["T4", "L4"]
    assert both.document()["machines"].blocks
    assert both.status is ExitStatus.HOLDS


def test_from_python_it_works_in_the_callers_process_unless_others_are_asked_for() -> None:
    """Workers import the caller's script once more, which would ask there too."""
    seen: list[FitRequest] = []
    asked = question("fit", FitRequest, seen.append, alone=True)
    for given in ({}, {"threads": 4}, {"cluster": "auto"}):
        asked("mlp", **given)
    assert [one.workers.where.at_once for one in seen[:2]] == [1, 4]
    assert seen[2].workers.threads is None


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("time", {"machine": "t4"}),
        ("metrics", {}),
        ("simulate", {"budget": "2KiB"}),
        ("scale", {"devices": 2, "machine": "t4"}),
        ("draw", {"output": "x.svg"}),
    ],
)
def test_an_answer_shows_itself_and_has_a_status(
    name: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = getattr(tensortide, name)(tensortide.capture(small), **given)
    assert isinstance(found.status, ExitStatus)
    assert repr(found).startswith("<")
    if name == "draw":
        assert (tmp_path / "x.svg").exists()
        assert found._repr_svg_().startswith("<svg")
    else:
        assert str(found) == str(found.document())
        assert "<" in found._repr_html_()


def test_a_file_that_is_asked_for_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.status.json"
    assert tensortide.metrics(dots(), output=path).wrote == (path,)
    assert macs(tensortide.metrics(path)) == 576
    with pytest.raises(TensortideError):
        tensortide.metrics(dots(), output=tmp_path / "none" / "x.status.json")


def test_functions_and_commands_count_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, path = dots(), tmp_path / "dots.tide"
    tensortide.save(graph, path)
    total = tensortide.count(graph).total
    assert (total.macs, total.flops) == (576, 2 * 576 + 48)
    assert tensortide.count(graph, resolver=None).total.macs == 0
    assert tensortide.explain(graph, "linalg_multi_dot").how == "decomposition"
    assert macs(tensortide.metrics(graph)) == 576
    profiler = tensortide.Profiler(graph)
    profiler.compute_all()
    assert profiler["macs"] == 576
    assert tensortide.check(graph, "macs == 576").holds
    assert [one.status.entries["macs"].value for one in tensortide.compare(graph, path).entrants] == [576, 576]
    assert '"macs":576' in render_json(tensortide.report(graph)).replace(" ", "")
    for name in ("count", "report", "metrics"):
        assert '"macs":576' in run(capsys, name, path, "--json").replace(" ", ""), name
    run(capsys, "check", path, "--assert", "macs == 576")
    run(capsys, "count", path, "--ops", "--strict")


@pytest.mark.parametrize("budget", ["80%", "1KiB", 0.8, 1024])
def test_a_budget_is_what_the_command_line_takes(budget: Any) -> None:
    graph = tensortide.capture(small)
    planned = tensortide.plan(graph, budget, work_limit=1e-3)
    asked = tensortide.plan(graph, planned.budget_bytes, work_limit=1e-3)
    assert (asked.status, asked.peak_bytes) == (planned.status, planned.peak_bytes)
    if budget in ("1KiB", 1024):
        assert planned.budget_bytes == 1024


@pytest.mark.parametrize("budget", ["lots", None, True, [], "8GiB,9GiB", -1])
def test_what_is_no_budget_is_one_clear_error(budget: Any) -> None:
    with pytest.raises(PlanError, match="budget"):
        tensortide.plan(tensortide.capture(small), budget)


@pytest.mark.parametrize("name", ["count", "report", "plan"])
@pytest.mark.parametrize("nothing", [None, 3])
def test_what_is_no_target_is_one_clear_error(name: str, nothing: object) -> None:
    with pytest.raises(TensortideError, match="is nothing that tensortide opens"):
        getattr(tensortide, name)(nothing, *["80%"] * (name == "plan"))


@pytest.mark.parametrize("name", ["explain", "timeline", "liveness", "footprint", "frontier", "save"])
@pytest.mark.parametrize("nothing", [None, "gpt2", 3])
def test_what_is_no_graph_is_one_clear_error(name: str, nothing: object) -> None:
    more = {"explain": ("mm",), "save": ("x.tide",)}.get(name, ())
    how = rf"tensortide\.{name}\(tensortide\.open\('gpt2'\)\.graph" if nothing == "gpt2" else r"tensortide\.capture\("
    with pytest.raises(GraphError, match=f"^{name} takes a Graph, not .*: {how}"):
        getattr(tensortide, name)(nothing, *more)
