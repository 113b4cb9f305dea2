"""Questions of place as Python asks them: values or texts, rules, and what the answer of a search decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import ExitStatus, NothingFits, RequestError, TensortideError
from tensortide.parallelism.shards import Shard
from tensortide.placements import COMPAT
from tensortide.placements.genes import OnDevices
from tensortide.placements.graphs import Grouping, PlaceOptions
from tensortide.placements.search.genetic import Genetic
from tensortide.request import Request, made
from tensortide.studies.placement.links import LinksRequest
from tensortide.studies.placement.placed import PlaceRequest, answer
from tensortide.studies.placement.request import ClusterRequest, NetRequest, SearchRequest
from tensortide.studies.placement.result import ResultRequest
from tensortide.studies.placement.steps import AUTO, Pin, StepCapture, StepRequest
from tensortide.studies.placement.validation import ValidateRequest
from tensortide.studies.placement.validation import answer as validation
from tests.placements.cases import EXPRIMO

NET = EXPRIMO / "nets" / "mnist.json"
SERVER = ClusterRequest(machine=EXPRIMO / "device_graphs" / "malvik-4gpu-reduced-alexnet.json")


def asked(budget: int, **net: Any) -> PlaceRequest:
    search = SearchRequest(budget=budget, option=("planned=100",))
    return PlaceRequest(target=str(NET), cluster=SERVER, net=NetRequest(**net), search=search)


def test_pins_and_shards_are_values_or_their_texts() -> None:
    texts = made(StepRequest, {"pin": ("a.b=gpu1",), "shard": ("h.*=output:2", AUTO), "no_overlap": True, "data": 2})
    values = StepRequest(
        pin=(Pin("a.b", "gpu1"),),
        shard=(Shard("h.*", "output", 2), AUTO),
        no_overlap=True,
        options=PlaceOptions(data=2),
    )
    assert texts == values
    assert texts.has_shards_found
    assert texts.place_options(3) == PlaceOptions(
        Grouping(), {"a.b": "gpu1"}, in_flight=3, shards=(Shard("h.*", "output", 2),), data=2, overlap=False
    )


def test_options_of_a_search_are_those_of_its_algorithm() -> None:
    assert SearchRequest(algorithm="genetic", option=("population=7",)).kind == Genetic(7)
    with pytest.raises(TensortideError, match="has no option 'popultion'"):
        SearchRequest(algorithm="genetic", option=("popultion=7",))


def test_a_network_runs_with_the_settings_of_the_published_simulator() -> None:
    found = NetRequest(batch=4, compat=True, utilization=0.5, memory_share=0.25).settings(2)
    assert (found.batch_size, found.mode, found.comp_penalization) == (4, COMPAT, 0.5)
    assert (found.device_memory_utilization, found.pipeline_batches, found.optimizer) == (0.25, 2, "sgd")


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (NetRequest, {"optimizer": "adam", "compat": True}, "--optimizer and --compat exclude each other"),
        (NetRequest, {"memory_share": 0}, "--memory-share takes a finite number above 0 up to 1, not 0"),
        (SearchRequest, {"starts": 2, "resume": Path("s")}, "--starts and --resume exclude each other"),
        (SearchRequest, {"seed": -1}, "--seed takes a whole number from 0, not -1"),
        (StepRequest, {"pin": ("a=x", "a=y")}, "--pin: a is pinned to x and to y"),
        (StepRequest, {"pin": ("a",)}, "--pin takes MODULE=DEVICE"),
        (StepRequest, {"shard": ("a",)}, "--shard takes MODULE=ALONG:PARTS"),
        (StepRequest, {"no_overlap": True}, "--no-overlap goes with --data"),
        (LinksRequest, {"sizes": "1e6,1e3"}, "--sizes 1e6,1e3: give two sizes or more, in ascending order"),
        (LinksRequest, {"link": ("ssd",), "out": Path("c.json")}, "--out needs the link host"),
        (LinksRequest, {"between": "a,b"}, "--between goes with --machine"),
        (ValidateRequest, {"net": NET, "placements": ()}, "give either --times or --by"),
    ],
)
def test_what_does_not_go_together_is_no_request(kind: type[Request], values: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        kind(**values)


@pytest.mark.parametrize("search", [{"budget": 5}, {"algorithm": "random"}, {"time_limit": 1.0}])
def test_a_plan_is_played_without_a_search(search: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="exclude each other: a Plan is played as it is"):
        PlaceRequest(target="mlp", search=SearchRequest(**search), result=ResultRequest(plan=Path("p.json")))
    with pytest.raises(RequestError, match="--run and --ranks exclude each other"):
        PlaceRequest(target="mlp", step=StepRequest(capture=StepCapture(ranks=2)), result=ResultRequest(run=1))


def test_options_of_the_other_kind_of_target_are_refused() -> None:
    with pytest.raises(RequestError, match="mlp is a captured step: --batch goes with a network"):
        answer(PlaceRequest(target="mlp", cluster=SERVER, net=NetRequest(batch=4)))
    step = StepRequest(options=PlaceOptions(micro_batches=2))
    with pytest.raises(RequestError, match="is a network of layers: --micro-batches goes with a captured step"):
        answer(PlaceRequest(target=str(NET), cluster=SERVER, step=step))


def test_the_status_says_whether_a_placement_may_fit(tmp_path: Path) -> None:
    assert answer(asked(60, batch=8)).status is ExitStatus.HOLDS
    large = {"batch": 40960, "devices": "1,2"}
    some, every = answer(asked(60, **large)), answer(asked(1000, **large))
    assert (some.fits, some.status) == (False, ExitStatus.UNDECIDED)
    assert (every.fits, every.status) == (False, ExitStatus.FAILS)
    machine = json.loads((SERVER.machine or Path()).read_text("utf-8"))
    for device in machine["devices"]:
        device["memory"] = 1e-6
    (tmp_path / "small.json").write_text(json.dumps(machine))
    with pytest.raises(NothingFits, match="bytes for its weights"):
        answer(PlaceRequest(target=str(NET), cluster=ClusterRequest(machine=tmp_path / "small.json")))


def test_a_function_measures_as_it_is_or_by_its_name(tmp_path: Path) -> None:
    names = [*json.loads(NET.read_text("utf-8"))["layers"]]
    for number in range(4):
        text = json.dumps({name: min(number, 1 + place % 2) for place, name in enumerate(names)})
        (tmp_path / f"p{number}.json").write_text(text)

    def slow(order: dict[str, OnDevices]) -> float:
        return 10.0 + sum(device for device in order.values() if isinstance(device, int))

    found = validation(ValidateRequest(net=NET, placements=(tmp_path,), by=slow, cluster=SERVER))
    assert [pair.measured_ms for pair in found.pairs] == sorted(pair.measured_ms for pair in found.pairs)
    with pytest.raises(RequestError, match="math:pi is no function"):
        ValidateRequest(net=NET, placements=(tmp_path,), by="math:pi", cluster=SERVER)  # type: ignore[arg-type] # a text
