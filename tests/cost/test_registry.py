"""The table of rules: what it takes, what it refuses, and how much of the vocabulary it has."""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tensortide.cost import Cost, OpCall, registry, rule
from tensortide.cost.evaluate import rule_for
from tensortide.errors import TensortideError
from tests.cost.probe import single, tensor


@pytest.fixture(autouse=True)
def _unchanged() -> Iterator[None]:
    registry.names()
    before = dict(registry._table)
    yield
    registry._table.clear()
    registry._table.update(before)


def test_twice_is_an_error() -> None:
    with pytest.raises(TensortideError, match=r"aten::mm has a cost rule already: .*products\.work"):
        rule("aten::mm")(lambda op: Cost())


@pytest.mark.parametrize("name", ["mm", "aten.mm", "::mm", "aten::"])
def test_malformed_names_are_refused(name: str) -> None:
    with pytest.raises(TensortideError, match="not an op name"):
        rule(name)(lambda op: Cost())


def test_an_op_of_a_domain_with_dots_has_the_name_that_is_shown() -> None:
    rule("com.acme.nn::Mix")(lambda op: Cost(macs=1))
    found = single("com.acme.nn::Mix", {"x": tensor(2)}, tensor(2)).cost
    assert found == Cost(macs=1, read_bytes=8, written_bytes=8)
    with pytest.raises(TensortideError, match="has a cost rule already"):
        rule("com::acme.nn::Mix")(lambda op: Cost())


def test_an_overload_wins_over_its_op() -> None:
    rule("lib::op")(lambda op: Cost(macs=1))
    rule("lib::op.special")(lambda op: Cost(macs=2))
    found = [single(f"lib.op.{overload}", {"x": tensor(2)}, tensor(2)).cost for overload in ("default", "special")]
    assert found == [Cost(macs=1, read_bytes=8, written_bytes=8), Cost(macs=2, read_bytes=8, written_bytes=8)]


def test_one_rule_for_all_forms() -> None:
    rule("lib::op")(lambda op: Cost(elementwise_flops=op.tensor("self").numel))
    for name in ("lib::op", "lib::op_", "lib::op.out", "lib::op_.Scalar", "lib::_foreach_op", "lib::_foreach_op_.List"):
        assert rule_for(name) is not None, name
    lists = single("lib._foreach_op.default", {"self": (tensor(2), tensor(3))}, tensor(2), tensor(3))
    assert lists.cost is not None
    assert lists.cost.flops == 5


def test_a_rule_may_give_up_or_fail_and_then_the_op_is_unknown() -> None:
    rule("lib::silent")(lambda op: None)
    rule("lib::broken")(lambda op: Cost(macs=op.shape("absent")[0]))
    assert single("lib.silent.default", {"x": tensor(2)}, tensor(2)).cost is None
    broken = single("lib.broken.default", {"x": tensor(2)}, tensor(2))
    assert broken.cost is None
    assert "no tensor argument 'absent'; its arguments are: x" in broken.note


def test_bytes_of_the_interface_unless_the_rule_says_otherwise() -> None:
    rule("lib::plain")(lambda op: Cost(macs=1))
    rule("lib::special")(lambda op: Cost(macs=1, read_bytes=5, written_bytes=7))
    plain, special = (single(f"lib.{name}.default", {"x": tensor(3)}, tensor(2)).cost for name in ("plain", "special"))
    assert plain is not None
    assert special is not None
    assert (plain.read_bytes, plain.written_bytes) == (12, 8)
    assert (special.read_bytes, special.written_bytes) == (5, 7)


class Entry:
    """An installed plug-in."""

    name, value, dist = "theirs", "their.module:rules", None

    def __init__(self, load: Any) -> None:
        self.load = load


def test_plug_ins_are_loaded_and_named_when_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def register() -> None:
        rule("theirs::op")(lambda op: Cost(macs=3))

    registry._load_entry(Entry(lambda: register))  # type: ignore[arg-type]
    assert rule_for("theirs::op") is not None

    def fail() -> None:
        raise ImportError("no module named their")

    with pytest.raises(TensortideError, match=r"'theirs' \(their\.module:rules\) cannot be loaded: ImportError"):
        registry._load_entry(Entry(fail))  # type: ignore[arg-type]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [Entry(lambda: register)] * (group == GROUP))
    monkeypatch.setattr(registry, "_loaded", set())
    registry._table.pop("theirs::op")
    registry.load()
    registry._loaded.remove(registry._ALL)
    registry.load()  # what is loaded stays as it is
    assert rule_for("theirs::op") is not None


GROUP = "tensortide.cost_rules"


def test_every_rule_says_what_and_how() -> None:
    for name in registry.names():
        found = registry.find(name)
        assert found is not None
        assert found.formula, name
        assert found.meaning or inspect.getdoc(found.work) or name.startswith("aten::"), name


def vocabulary(tag: torch.Tag) -> list[Any]:
    """Overloads of ATen with ``tag`` that reach the dispatcher: composites are seen by their parts."""
    found = []
    for full in torch._C._dispatch_get_all_op_names():
        base, _, overload = full.removeprefix("aten::").partition(".")
        if full.startswith("aten::") and hasattr(torch.ops.aten, base):
            op = getattr(getattr(torch.ops.aten, base), overload or "default", None)
            if op is not None and tag in op.tags and not op._can_decompose():
                found.append(op)
    return found


@pytest.mark.parametrize("tag", [torch.Tag.pointwise, torch.Tag.core], ids=["pointwise", "core"])
def test_every_op_of_the_core_vocabulary_has_a_rule(tag: torch.Tag) -> None:
    ops = vocabulary(tag)
    assert len(ops) > 100
    assert [op.name() for op in ops if not op.is_view and rule_for(op.name()) is None] == []


def test_opcall_gives_arguments_with_defaults() -> None:
    call = OpCall("lib::op", {"x": tensor(2, 3), "none": None, "items": (tensor(1), tensor(2))}, [tensor(4)])
    assert (call.arg("alpha", 1), call.arg("none", 7), call.has("none"), call.shape("x")) == (1, 7, False, (2, 3))
    assert [t.shape for t in call.tensors("items")] == [(1,), (2,)]
    assert (call.out.shape, len(call.inputs)) == ((4,), 3)
