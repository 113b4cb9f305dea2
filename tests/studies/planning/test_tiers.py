"""Tiers of plans: those of a device in a cluster file are those of the options that say the same."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import RequestError
from tensortide.plans.planned import Planned
from tensortide.studies.planning import tiers as module
from tensortide.studies.planning.policies import device_of
from tensortide.studies.planning.request import PlannerRequest, PlanRequest, answer
from tensortide.studies.planning.tiers import TiersRequest
from tensortide.targets.requests import CaptureRequest, TimedRequest
from tensortide.timing import link
from tests.graphs import path_of

HOST: dict[str, Any] = {"name": "host", "link": "2MB/s,0us", "capacity_bytes": 4096}
SSD: dict[str, Any] = {"name": "ssd", "link": {"bytes_per_s": 3e9, "latency_ns": 7, "back_bytes_per_s": 5e9}}


def box(folder: Path, *tiers: dict[str, Any], **content: Any) -> str:
    path = folder / "box.json"
    path.write_text(json.dumps({"devices": [{"name": "gpu", "device": "h100-sxm", "tiers": tiers}], **content}))
    return str(path)


def test_a_plan_on_a_file_is_that_of_the_options_which_say_the_same(tmp_path: Path) -> None:
    said = TiersRequest(offload="host", host_link=link("2MB/s,0us"), host_memory=4096)
    found = []
    for machine, tiers in ((box(tmp_path, HOST), TiersRequest(offload="host")), ("h100-sxm", said)):
        step = TimedRequest(capture=CaptureRequest(machines=(machine,)))
        planner = PlannerRequest(effort=0.01, tiers=tiers)
        asked = PlanRequest(target=str(path_of("mlp")), budget="75%", planner=planner, step=step)  # type: ignore[arg-type]
        found.append(answer(asked))
    ours, theirs = (each.found for each in found)
    assert isinstance(ours, Planned)
    assert isinstance(theirs, Planned)
    assert found[0].recording.durations_ns == found[1].recording.durations_ns
    assert (ours.budget_bytes, ours.status, ours.plan) == (theirs.budget_bytes, theirs.status, theirs.plan)
    assert ours.plan is not None
    assert [(each.bytes_per_s, each.latency_ns, each.capacity_bytes) for each in found[0].links] == [
        (each.bytes_per_s, each.latency_ns, each.capacity_bytes) for each in found[1].links
    ]


def test_tiers_have_the_rates_of_their_links_both_ways(tmp_path: Path) -> None:
    both = TiersRequest(offload="host,ssd")
    host, ssd = both.on(box(tmp_path, HOST, SSD)).links
    assert (host.bytes_per_s, host.capacity_bytes) == (Fraction(2 * 10**6), 4096)
    assert (ssd.bytes_per_s, ssd.in_bytes_per_s, ssd.latency_ns, ssd.capacity_bytes) == (
        Fraction(3 * 10**9),
        Fraction(5 * 10**9),
        7,
        None,
    )
    (over,) = TiersRequest(offload="ssd").on(box(tmp_path, HOST, {**SSD, "over": "host"})).links
    assert (over.bytes_per_s, over.in_bytes_per_s, over.latency_ns) == (Fraction(2 * 10**6), Fraction(2 * 10**6), 7)
    assert both.on(box(tmp_path)) == both.on("h100") == both
    assert replace(both, ssd_memory=9).on(box(tmp_path, HOST, SSD)).links[1].capacity_bytes == 9


def test_the_default_link_of_a_tier_that_a_file_has_not_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(module.LOG, "info", lambda text, *given: said.append(text % given))
    machine = box(tmp_path, SSD)
    TiersRequest(offload="host").on(machine)
    assert said.pop(0) == f"{machine} has no tier host: its link is pcie4, unless --host-link says other"
    said.clear()
    TiersRequest(offload="host,ssd", host_link=link("pcie5")).on(machine)
    assert said == []


@pytest.mark.parametrize(
    ("given", "tiers", "message"),
    [
        ({"host_link": link("pcie4")}, (HOST,), "--host-link: .*box.json has it already: leave one out"),
        ({"host_memory": 1}, (HOST,), "--host-memory: .*box.json has it already"),
        ({}, (HOST, {**SSD, "over": "host"}), "--offload host,ssd: in .*box.json they share a queue"),
        ({}, ({"name": "host", "channel": "a"}, {"name": "ssd", "channel": "a"}), "they share a queue"),
    ],
)
def test_what_a_file_and_options_cannot_both_say_is_refused(
    given: dict[str, Any], tiers: tuple[dict[str, Any], ...], message: str, tmp_path: Path
) -> None:
    channels = [{"name": "a", "link": "pcie3"}] if any("channel" in tier for tier in tiers) else []
    machine = box(tmp_path, *tiers, channels=channels)
    with pytest.raises(RequestError, match=message):
        TiersRequest(offload="host,ssd", **given).on(machine)


def test_policies_play_with_the_tiers_of_a_file(tmp_path: Path) -> None:
    machine = box(tmp_path, HOST, {**SSD, "over": "host"})
    step = TimedRequest(capture=CaptureRequest(machines=(machine,)))
    found = device_of(PlanRequest(target="x", policies=["g10"], step=step), 1 << 20)
    assert found.capacity_bytes == 1 << 20
    assert [(tier.link.name, tier.over) for tier in found.tiers] == [("host", ""), ("ssd", "host")]
    offload = PlannerRequest(tiers=TiersRequest(offload="host"))
    with pytest.raises(RequestError, match=r"--policies play with the tiers of .*: leave out --offload"):
        device_of(PlanRequest(target="x", policies=["g10"], step=step, planner=offload), None)
