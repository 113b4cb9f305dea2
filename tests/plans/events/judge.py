"""The independent checker of plans, and what it needs: instances and plans in its format."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

from tensortide.plans import Compute, Copy, Drop, Evict, Fetch, Offload
from tensortide.plans.events import Played
from tensortide.plans.instance import DEVICE, Instance, InstanceOp, InstanceStorage
from tensortide.plans.model import Step
from tensortide.timing.links import Link
from tests.reference import reference_folder

KINDS: dict[str, type[Step]] = {
    "compute": Compute,
    "evict": Evict,
    "copy": Copy,
    "offload": Offload,
    "fetch": Fetch,
    "drop": Drop,
}


def planning_folder() -> Path:
    return reference_folder() / "planning"


@functools.cache
def judge() -> ModuleType:
    """``check_plan.py``."""
    spec = importlib.util.spec_from_file_location("check_plan", planning_folder() / "check_plan.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def instance_of(data: Mapping[str, Any]) -> Instance:
    """An instance of the reference data."""
    ops = [
        InstanceOp(
            op.get("name", ""),
            op["ns"],
            reads=tuple(sorted(set(op["reads"]))),
            writes=tuple(sorted(set(op.get("writes", ())))),
            makes=tuple(sorted(op.get("makes", ()))),
            workspace=op.get("workspace", 0),
            once=bool(op.get("once")),
        )
        for op in data["ops"]
    ]
    storages = [
        InstanceStorage(
            x["bytes"], bool(x.get("home")), bool(x.get("home")), bool(x.get("kept")), bool(x.get("pinned"))
        )
        for x in data["storages"]
    ]
    links = [
        Link(
            name,
            Fraction(x["out_bytes_per_s"]),
            x["latency_ns"],
            in_bytes_per_s=Fraction(x["in_bytes_per_s"]),
            capacity_bytes=x.get("capacity_bytes"),
        )
        for name, x in data.get("links", {}).items()
    ]
    home = {s: x["home"] for s, x in enumerate(data["storages"]) if x.get("home", DEVICE) != DEVICE}
    return Instance(tuple(ops), tuple(storages), tuple(links), home)


def plan_of(data: Mapping[str, Any]) -> tuple[list[Step], dict[int, str]]:
    """The steps and the homes of a plan of the reference data."""
    steps = [KINDS[kind](*arguments) for kind, *arguments in data["steps"]]
    return steps, {int(s): place for s, place in data.get("home", {}).items()}


def shift(instance: Instance) -> int:
    """The number of ops that ``judged`` puts before those of the instance."""
    return sum(storage.given and not storage.persistent for storage in instance.storages)


def judged(instance: Instance) -> dict[str, Any]:
    """``instance`` in the checker's format, which knows neither blind writes, nor ops that follow others for no
    storage's sake, nor what exists before the step and not after it.

    The last is made by ops of no time before all others, and an op that has to follow another reads from it a storage
    of no bytes that is never evicted.
    """
    assert not any(op.blind for op in instance.ops)
    local = [s for s, storage in enumerate(instance.storages) if storage.given and not storage.persistent]
    storages = [_storage(instance, s) for s in range(len(instance.storages))]
    signals: dict[int, int] = {}
    for earlier in sorted({u for op in instance.ops for u in op.after}):
        signals[earlier] = len(storages)
        storages.append({"bytes": 0, "kept": True})
    ops = [{"name": "given", "ns": 0, "reads": [], "makes": [s], "once": True} for s in local]
    for number, op in enumerate(instance.ops):
        ops.append(
            {
                "name": op.name,
                "ns": op.ns,
                "reads": [*op.reads, *(signals[u] for u in op.after)],
                "writes": [*op.writes],
                "makes": [*op.makes, *([signals[number]] if number in signals else [])],
                "workspace": op.workspace,
                "once": op.once,
            }
        )
    links = {
        link.name: {
            "out_bytes_per_s": link.bytes_per_s,
            "in_bytes_per_s": link.in_bytes_per_s or link.bytes_per_s,
            "latency_ns": link.latency_ns,
            "capacity_bytes": link.capacity_bytes,
        }
        for link in instance.links
    }
    return {"ops": ops, "storages": storages, "links": links}


def _storage(instance: Instance, s: int) -> dict[str, Any]:
    storage = instance.storages[s]
    found: dict[str, Any] = {"bytes": storage.nbytes, "kept": storage.kept, "pinned": storage.pinned}
    if storage.persistent:
        found["home"] = instance.home.get(s, DEVICE)
    return found


def judged_plan(instance: Instance, steps: Sequence[Step], home: Mapping[int, str]) -> dict[str, Any]:
    """A plan of ``instance`` in the checker's format."""
    names = {kind: name for name, kind in KINDS.items()}
    first = shift(instance)
    told: list[list[Any]] = [["compute", number] for number in range(first)]
    for step in steps:
        if isinstance(step, Compute):
            told.append(["compute", first + step.op])
        else:
            assert isinstance(step, Evict | Copy | Offload | Fetch | Drop)
            link = [step.link] if isinstance(step, Copy | Offload | Fetch | Drop) else []
            told.append([names[type(step)], step.storage, *link])
    return {"steps": told, "home": {str(s): place for s, place in home.items()}}


def log_of(played: Played) -> list[list[Any]]:
    """Step, start and end of every step, as the checker logs them."""
    names = {kind: name for name, kind in KINDS.items()}
    rows = []
    for step, start, end in zip(played.steps, played.start_ns, played.end_ns, strict=True):
        if isinstance(step, Compute):
            rows.append(["compute", step.op, start, end])
        else:
            link = [step.link] if isinstance(step, Copy | Offload | Fetch | Drop) else []
            rows.append([names[type(step)], step.storage, *link, start, end])
    return rows


def figures_of(played: Played, ops: int) -> dict[str, Any]:
    """All figures of ``played``, as the checker returns them."""
    computed = [step.op for step in played.steps if isinstance(step, Compute)]
    return {
        "makespan_ns": played.makespan_ns,
        "base_ns": played.base_ns,
        "recompute_ns": played.recompute_ns,
        "stall_ns": played.stall_ns,
        "tail_ns": played.tail_ns,
        "peak_bytes": played.peak_bytes,
        "tier_peak_bytes": dict(played.tier_peak_bytes),
        "busy_ns": {name.replace(" ", "."): value for name, value in played.busy_ns.items()},
        "moved_bytes": {name.replace(" ", "."): value for name, value in played.moved_bytes.items()},
        "runs": [computed.count(op) for op in range(ops)],
    }


def _judgement(instance: Instance, plan: Any, budget: int | None, serial: bool) -> dict[str, Any] | None:
    check = judge()
    try:
        found: dict[str, Any] = check.play(judged(instance), plan, budget, serial=serial)
    except check.Illegal:
        return None
    return found


def time_and_peak(instance: Instance, steps: Sequence[Step], budget: int) -> tuple[int, int]:
    """Time and peak of a plan as the checker plays it; it raises Illegal for one that breaks a rule."""
    found = judge().play(judged(instance), judged_plan(instance, steps, {}), budget)
    return found["makespan_ns"], found["peak_bytes"]


def assert_judged_alike(
    instance: Instance,
    steps: Sequence[Step],
    home: Mapping[int, str],
    budget: int | None,
    played: Played | None,
    *,
    serial: bool = False,
) -> None:
    """The checker finds the plan illegal if ``played`` is None, or else gets every figure and every time of it."""
    expected = _judgement(instance, judged_plan(instance, steps, home), budget, serial)
    assert (played is None) == (expected is None)
    if played is None or expected is None:
        return
    first, signals = shift(instance), len(instance.storages)
    log = [row for row in expected.pop("log") if row[0] == "compute" or row[1] < signals]
    assert expected["runs"][:first] == [1] * first
    expected["runs"] = expected["runs"][first:]
    assert figures_of(played, len(instance.ops)) == expected
    moved = [["compute", row[1] - first, *row[2:]] if row[0] == "compute" else row for row in log]
    assert sorted(log_of(played), key=str) == sorted((row for row in moved if row[1] >= 0), key=str)
