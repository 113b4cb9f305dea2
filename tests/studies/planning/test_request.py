"""Python asks the planner what the command line asks, with the same options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import ExitStatus, RequestError, TensortideError
from tensortide.graph import load, save
from tensortide.plans import in_order, save_plan
from tensortide.plans.immovable import immovable
from tensortide.plans.planned import Planned
from tensortide.progress import Search
from tensortide.replays.g10.machine import machine_of
from tensortide.request import made
from tensortide.studies.planning.g10_comparison import OURS, Compared
from tensortide.studies.planning.policies import device_of
from tensortide.studies.planning.request import (
    FrontierRequest,
    OrderRequest,
    PlannerRequest,
    PlanRequest,
    answer,
    answer_frontier,
    answer_order,
)
from tensortide.studies.planning.tiers import TiersRequest
from tensortide.timelines import timeline
from tensortide.timing import link
from tests.plans.dags import random_dag

QUICK = PlannerRequest(effort=0.01)


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("requests") / "step.tide"
    save(random_dag(3, 12), path)
    return str(path)


def test_a_plan_a_frontier_and_an_order_are_asked_from_python(step: str) -> None:
    peak = timeline(load(step), lifetimes="last_use").peak_bytes
    found = answer(PlanRequest(target=step, budget="90%", planner=QUICK))  # type: ignore[arg-type] # it is read
    assert (found.status, found.file) == (ExitStatus.HOLDS, None)
    planned = found.found
    assert isinstance(planned, Planned)
    assert planned.budget_bytes == int(0.9 * peak)
    assert planned.status == "fits"
    front = answer_frontier(FrontierRequest(target=step, points=2, planner=QUICK))
    assert (front.status, front.budget_bytes) == (ExitStatus.HOLDS, None)
    assert front.found.points[-1].peak_bytes == peak
    assert len(front.recording.graph) == 12
    assert answer_order(OrderRequest(target=step))[1].upper_bytes <= peak


def test_policies_are_asked_from_python_as_a_plan_is(step: str) -> None:
    found = answer(PlanRequest(target=step, policies="ideal", planner=QUICK))
    assert isinstance(found.found, Compared)
    assert [one.policy for one in found.found.outcomes] == ["ideal", OURS]
    assert found.status is found.found.status


def test_a_search_that_is_stopped_returns_what_it_knows(step: str) -> None:
    heard = list[str]()
    request = PlanRequest(target=step, budget=1 << 40, planner=QUICK)  # type: ignore[arg-type] # it is read
    assert answer(request, Search(heard.append, lambda: True)).status is ExitStatus.HOLDS
    assert "preparing the search" in " ".join(heard)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"host_link": "pcie4"}, "--host-link goes with --offload host or host,ssd"),
        ({"host_memory": "1GiB", "offload": "ssd"}, "--host-memory goes with --offload host or host,ssd"),
        ({"ssd_link": "nvme", "offload": "host"}, "--ssd-link goes with --offload ssd or host,ssd"),
        ({"ssd_memory": 1 << 30}, "--ssd-memory goes with --offload ssd or host,ssd"),
        ({"offload": "tape"}, "--offload takes host, ssd or host,ssd, not tape"),
        ({"order": "any"}, "--order takes recorded or free, not any"),
        ({"effort": -1}, "--effort takes a finite number from 0 up to 1000000000, not -1"),
        ({"effort": float("nan")}, "--effort takes a finite number"),
        ({"work_limit": -1}, "--work-limit takes a finite number from 0"),
    ],
)
def test_what_does_not_go_together_is_an_error(options: dict[str, Any], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        made(PlannerRequest, options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "a budget is missing"),
        ({"budget": "60%", "torch": Path("less.json")}, r"give a name that ends with \.py, not less\.json"),
        ({"budget": "60%", "compat_memory": True}, "--compat-memory goes with --policies"),
        ({"policies": "all", "torch": Path("less.py")}, "--torch and --policies exclude each other"),
        ({"policies": "lru"}, "there is no policy 'lru'"),
        ({"budget": "1,2"}, "2 budgets"),
    ],
)
def test_a_request_that_means_nothing_is_an_error(options: dict[str, Any], why: str) -> None:
    with pytest.raises(TensortideError, match=why):
        PlanRequest(target="mlp", **options)


def test_links_are_those_of_the_tiers_that_are_asked_for() -> None:
    assert TiersRequest().links == ()
    asked = TiersRequest(
        offload="host,ssd",
        host_link="25GB/s,10us",  # type: ignore[arg-type] # it is read
        host_memory="1GiB",  # type: ignore[arg-type] # it is read
    )
    host, drive = asked.links
    assert (host.name, int(host.bytes_per_s), host.latency_ns) == ("host", 25 * 10**9, 10_000)
    assert host.capacity_bytes == 1 << 30
    assert (drive.name, drive.bytes_per_s, drive.capacity_bytes) == ("ssd", link("nvme").bytes_per_s, None)
    machine = machine_of(
        device_of(PlanRequest(target="mlp", policies="ideal", planner=PlannerRequest(tiers=asked)), None)
    )
    assert (machine.wire, machine.host_latency_ns, machine.host_bytes) == (25 * 10**9, 10_000, 1 << 30)


def test_the_options_are_arguments_of_plan(step: str, tmp_path: Path) -> None:
    graph, path = load(step), tmp_path / "order.json"
    save_plan(in_order(graph, range(len(graph)), "cpu"), path)
    how = PlannerRequest(no_recompute=True, against=(path,), pin=("*",), order="free").of(graph)
    assert (how["recompute"], how["order"], how["time_limit_s"], how["work_limit"]) == (False, "free", None, None)
    assert [*how["known"]] == [str(path)]
    assert how["pinned"] == set(range(len(graph.storages)))
    assert PlannerRequest(work_limit=10).of(graph)["time_limit_s"] is None
    assert PlannerRequest().of(graph)["pinned"] == immovable(graph)
