"""The table of roles: every row is complete, and a new row is all that a new role takes."""

from __future__ import annotations

import io
import json
import re
from itertools import pairwise

import pytest
from rich.console import Console

from tensortide.graph import Role
from tensortide.graph.model import Graph, Named
from tensortide.graph.roles import BANDS, WORKSPACE, Look, Row, looks, stacked
from tensortide.reports import report
from tensortide.reports.pictures import Curve
from tensortide.reports.render.chart import curve_lines
from tensortide.reports.render.html import render_html
from tensortide.timelines import timeline
from tests.graphs import Builder


def test_every_row_is_complete() -> None:
    assert [role.precedence for role in Role] == list(range(len(Role)))
    assert sorted(stacked()) == sorted(Role)
    assert [*looks()] == [*(role.value for role in stacked()), WORKSPACE]
    for name, look in looks().items():
        assert look.band in BANDS, name
        assert re.fullmatch(r"#[0-9a-f]{6}", look.light), name
        assert re.fullmatch(r"#[0-9a-f]{6}", look.dark), name
    for theme in ("light", "dark"):
        assert len({getattr(look, theme) for look in looks().values()}) == len(looks()), "two roles of one colour"


def test_long_lived_memory_is_stacked_below_what_comes_and_goes() -> None:
    assert [role.value for role in stacked()] == [
        *("parameter", "buffer", "optimizer_state", "input", "cache", "library"),
        *("gradient", "output", "activation", "temporary"),
    ]
    assert not any(role.row.renewed for role in Role if role.row.given)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Role:
    """A role that no code knows, added to the table for one test."""
    role: Role = Role._new_member_(Role, Row("toy_cache", Look(BANDS[1], "#123456", "#fedcba"), given=True))  # type: ignore[attr-defined]
    role._name_ = "TOY_CACHE"
    monkeypatch.setattr(Role, "_member_names_", [*Role._member_names_, role._name_])
    monkeypatch.setitem(Role._member_map_, role._name_, role)
    monkeypatch.setitem(Role._value2member_map_, role.value, role)
    return role


def stepped(role: Role) -> Graph:
    b = Builder()
    weight = b.storage(1000, Role.PARAMETER, name="w")
    cache = b.storage(5000, role, name="kept")
    made = b.storage(300, Role.ACTIVATION, 0, 2)
    b.op([weight, cache], [made])
    b.op([made], [b.storage(200, Role.TEMPORARY, 1, 2)])
    graph = b.graph()
    named = (Named("w", Role.PARAMETER, weight, True), Named("kept", role, cache))
    return Graph(graph.ops, graph.calls, graph.tensors, graph.storages, graph.modules, named=named, meta=graph.meta)


def test_a_new_role_appears_in_timeline_report_and_page(toy: Role) -> None:
    graph = stepped(toy)
    for rule in ("eager", "last_use"):
        assert timeline(graph, lifetimes=rule).by_role[toy].tolist() == [5000, 5000], "what outlives the step stays"
    document = report(graph)
    memory = document["memory"]
    assert memory.table("storages")["role"] == ("toy_cache", "parameter", "activation", "temporary")
    curve = memory["resident"]
    assert isinstance(curve, Curve)
    assert {one.key: one.values for one in curve.stack}["toy_cache"] == (5000, 5000)
    assert memory.table("roles")["role"][:2] == ("toy_cache", "parameter")
    shown = io.StringIO()
    Console(file=shown, width=100, no_color=True, highlight=False).print(document)
    assert "toy" in shown.getvalue()
    chart = "\n".join(line.plain for line in curve_lines(curve, 40, ascii_only=True))
    assert "+++" in chart, "drawn in the band of its row"
    page = render_html(document, compress=False)
    assert page.count("--toy_cache: #") == 2
    data = json.loads(re.search(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.DOTALL)[1])  # type: ignore[index]
    (shown_memory,) = [one for one in data["sections"] if one["key"] == "memory"]
    assert "toy_cache" in json.dumps(shown_memory)


def test_the_roles_that_take_most_memory_are_told_apart_in_grey() -> None:
    most = (Role.PARAMETER, Role.OPTIMIZER_STATE, Role.GRADIENT, Role.ACTIVATION, Role.TEMPORARY)
    weights = (0.299, 0.587, 0.114)
    greys = []
    for role in most:
        red, green, blue = (int(role.row.look.light[i : i + 2], 16) for i in (1, 3, 5))
        greys.append(sum(part * weight for part, weight in zip((red, green, blue), weights, strict=True)))
    greys.sort()
    assert all(lighter - darker > 25 for darker, lighter in pairwise(greys))
