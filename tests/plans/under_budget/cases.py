"""The given cases of recomputation, with their proven optima."""

from __future__ import annotations

import json
from typing import Any

from tests.plans.events.judge import planning_folder


def cases() -> list[Any]:
    """Every given case of recomputation; none where the data are absent."""
    return list(_data()["cases"]) if planning_folder().is_dir() else []


def name_of(case: dict[str, Any]) -> str:
    return f"{case['instance']}-{case['budget_bytes']}-{case['order']}"


def raw(case: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _data()["instances"][case["instance"]]
    return found


def _data() -> Any:
    return json.loads((planning_folder() / "recompute.json").read_text())
