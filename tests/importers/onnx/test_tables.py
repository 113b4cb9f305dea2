"""The tables of ops are complete: every standard op has a shape function and a cost rule, or is known to have none."""

from __future__ import annotations

import pytest
from onnx import defs

import tensortide
from tensortide.cost import count, read_rows, registry
from tensortide.cost.registry import find, names
from tensortide.expr import expr_of
from tensortide.importers.onnx import shapes
from tensortide.importers.onnx.control import CONTROL
from tensortide.importers.onnx.read import NEWEST
from tensortide.importers.onnx.shapes.base import SHAPES
from tensortide.importers.shapes import said
from tests.importers.onnx import build
from tests.importers.onnx.cases import CASES, Case, named

STANDARD = sorted({schema.name for schema in defs.get_all_schemas_with_history() if not schema.domain})
WITHOUT_RULE = {"SequenceMap", "TfIdfVectorizer"}
"""A loop over its body; an op whose work depends on the texts."""


def test_the_newest_opset_of_onnx_is_read() -> None:
    assert shapes.contrib.DOMAIN == "com.microsoft"
    assert defs.onnx_opset_version() <= NEWEST


@pytest.mark.parametrize("name", STANDARD)
def test_every_standard_op_has_a_shape_function_and_a_rule(name: str) -> None:
    assert name in SHAPES or name in CONTROL or said(f"onnx.{name}")
    assert (f"onnx::{name}" in names()) is (name not in WITHOUT_RULE)


def test_an_op_of_a_users_row_has_the_shape_that_its_family_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_table", {name: find(name) for name in names()})
    read_rows({"com.acme::Mix": {"family": "elementwise", "weights": "arithmetic"}})
    mix = build.node("Mix", "x y", "out", domain="com.acme")
    opened = tensortide.open(build.model([mix], {"x": (build.FLOAT, ["batch", 1]), "y": (build.FLOAT, [3])}, "out"))
    (op,) = opened.graph
    assert [str(expr_of(n)) for n in op.outputs[0].shape] == ["batch", "3"]


@pytest.mark.parametrize("case", CASES, ids=named)
def test_no_rule_fails(case: Case) -> None:
    assert count(tensortide.open(case.model()).graph, strict=True).coverage.complete
