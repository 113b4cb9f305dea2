"""Planning instances: the given ones with their proven optima, and random small ones; and plans judged by the checker.

The checker is the one that comes with the reference data: it knows nothing of this package.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tensortide.plans.instance import Instance, InstanceOp, InstanceStorage
from tensortide.plans.model import Compute, Evict, Step
from tests.reference import reference_folder

FOLDER = reference_folder() / "planning"


def cases() -> list[Any]:
    """Every given case of recomputation; none where the data are absent."""
    if not FOLDER.is_dir():
        return []
    return list(json.loads((FOLDER / "recompute.json").read_text())["cases"])


def name_of(case: dict[str, Any]) -> str:
    return f"{case['instance']}-{case['budget_bytes']}-{case['order']}"


def raw(case: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "recompute.json").read_text())["instances"][case["instance"]]
    return found


def instance_of(stored: dict[str, Any]) -> Instance:
    """The instance in the form of the reference data as ours."""
    ops = [
        InstanceOp(
            op["name"],
            op["ns"],
            tuple(sorted(op["reads"])),
            tuple(sorted(op.get("writes", ()))),
            tuple(sorted(op.get("makes", ()))),
            op.get("workspace", 0),
            bool(op.get("once")),
        )
        for op in stored["ops"]
    ]
    storages = [
        InstanceStorage(
            storage["bytes"],
            given="home" in storage,
            persistent="home" in storage,
            kept=bool(storage.get("kept")),
            pinned=bool(storage.get("pinned")),
        )
        for storage in stored["storages"]
    ]
    return Instance(tuple(ops), tuple(storages))


@functools.cache
def checker() -> ModuleType:
    path = Path(FOLDER / "check_plan.py")
    if not path.is_file():
        pytest.skip("the checker of plans is part of the reference data")
    spec = importlib.util.spec_from_file_location("check_plan", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def judged(stored: dict[str, Any], steps: Iterable[Step], budget_bytes: int) -> tuple[int, int]:
    """Time and peak of ``steps`` as the checker plays them; it raises Illegal for a plan that breaks a rule."""
    written = []
    for step in steps:
        assert isinstance(step, Compute | Evict)
        written.append(["compute", step.op] if isinstance(step, Compute) else ["evict", step.storage])
    found = checker().play(stored, {"steps": written}, budget_bytes)
    return found["makespan_ns"], found["peak_bytes"]


def stored_of(problem: Instance) -> dict[str, Any]:
    """Our instance in the form of the reference data; what exists before the step is persistent."""
    ops = [
        {
            "name": op.name,
            "ns": op.ns,
            "reads": list(op.reads),
            "writes": list(op.writes),
            "makes": list(op.makes),
            "workspace": op.workspace,
            "once": op.once,
        }
        for op in problem.ops
    ]
    storages = [
        {"bytes": s.nbytes, "kept": s.kept, "pinned": s.pinned, **({"home": "device"} if s.given else {})}
        for s in problem.storages
    ]
    return {"ops": ops, "storages": storages}
