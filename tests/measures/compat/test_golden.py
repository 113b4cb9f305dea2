"""Figures and layer tables that deeplite-profiler 1.2.5 printed, from our Graph: to the last digit and cell."""

from __future__ import annotations

import ast
import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tensortide.measures.compat.figures import Figure, figures, scaled_flops
from tensortide.measures.compat.liveness import Row, layer_rows
from tensortide.measures.compat.nodes import node_graph
from tensortide.recorder.torch_compat import key_above_autograd
from tests.marks import some_slow
from tests.measures.compat.models import MODELS, forward_graph

pytestmark = pytest.mark.skipif(key_above_autograd is None, reason="this PyTorch takes no handler above autograd")

NAMES = some_slow(
    [name for name in MODELS if name != "small_network"], {"resnet50", "tv_vit_b16", "bert_base", "gpt2_s128"}
)
SIZE_PRODUCT = 1
"""The traced graph of the ViT multiplies two sizes of a tensor in a node of its own, which is charged 1."""
SHAPES = {"size", "Int", "ScalarImplicit", "floor_divide"}
"""Nodes of arithmetic on sizes, which in eager execution is Python's."""


@pytest.fixture(scope="module")
def compat(reference: Path) -> Path:
    return reference / "counters" / "compat"


@pytest.fixture(scope="module")
def status(compat: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((compat / "status.json").read_text())
    return found


def by_name(found: tuple[Figure, ...]) -> dict[str, Figure]:
    assert all(figure.remainder == 0 for figure in found)
    return {figure.name: figure for figure in found}


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_those_recorded(name: str, status: dict[str, Any]) -> None:
    found = by_name(figures(forward_graph(name)))
    recorded = status[name]["status"]
    assert {key: figure.shown for key, figure in found.items() if key != "flops"} == {
        key: value for key, value in recorded.items() if key != "flops"
    }
    missed = round(recorded["flops"] * 1e9) - found["flops"].theirs
    assert missed == (SIZE_PRODUCT if name == "tv_vit_b16" else 0)
    assert found["total_params"].ours == status[name]["torch_params_all"]


def test_the_network_compared_with_too(status: dict[str, Any]) -> None:
    found = by_name(figures(forward_graph("small_network")))
    assert {key: figure.shown for key, figure in found.items()} == status["resnet18_cifar100"]["compare_other_status"]


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of tensor ops: those of arithmetic on sizes are left out."""
    with path.open() as lines:
        rows = [{**row, "op": row[""].split("::")[1]} for row in csv.DictReader(lines, delimiter="\t")]
    return [row for row in rows if row["op"] not in SHAPES and (row["input_shape"], row["output_shape"]) != NUMBER]


NUMBER = ("[]", "[[]]")
CELLS = ("weight", "bias", "input_shape", "output_shape", "ram")
PROLONGED = {"tv_vit_b16": {("permute", "1204224")}}
"""Rows at which a tensor is still live in the record as its size is read later, by a node that we do not have."""


@pytest.mark.parametrize(
    "name",
    some_slow([n for n in MODELS if n not in ("gpt2_s128", "small_network")], {"resnet50", "tv_vit_b16", "bert_base"}),
)
def test_layer_tables_are_those_recorded(name: str, compat: Path) -> None:
    path = compat / f"{name}.layerwise.tsv"
    if not path.exists():
        pytest.skip("not in the part of the data that is redistributed")
    rows, recorded = layer_rows(node_graph(forward_graph(name))), rows_of(path)
    assert [row.index.split("::")[1] for row in rows] == [row["op"] for row in recorded]
    assert [row.scope for row in rows] == [row["scope"] for row in recorded]
    assert different_cells(rows, recorded) == PROLONGED.get(name, set())
    assert_renamed([row.in_tensors for row in rows], [ast.literal_eval(row["in_tensors"]) for row in recorded])
    assert_renamed([row.out_tensors for row in rows], [ast.literal_eval(row["out_tensors"]) for row in recorded])


def different_cells(rows: tuple[Row, ...], recorded: list[dict[str, str]]) -> set[tuple[str, str]]:
    """Op and recorded value of each cell that differs."""
    pairs = ((row, theirs, cell) for row, theirs in zip(rows, recorded, strict=True) for cell in CELLS)
    return {
        (theirs["op"], theirs[cell])
        for row, theirs, cell in pairs
        if getattr(row, cell) != ast.literal_eval(theirs[cell])
    }


def assert_renamed(ours: list[list[str]], theirs: list[list[str]]) -> None:
    """Tensors have other names, one for one."""
    pairs = {pair for a, b in zip(ours, theirs, strict=True) for pair in zip(a, b, strict=True)}
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)


@pytest.mark.slow
def test_rows_of_gpt2_are_those_recorded_after_its_mask(compat: Path) -> None:
    """The ops that make the mask are those of the installed transformers; all that follow are the same."""
    path = compat / "gpt2_s128.layerwise.tsv"
    if not path.exists():
        pytest.skip("not in the part of the data that is redistributed")
    rows, recorded = layer_rows(node_graph(forward_graph("gpt2_s128"))), rows_of(path)
    ours, theirs = (
        next(i for i, op in enumerate(ops) if op == "dropout")
        for ops in ([row.index.split("::")[1] for row in rows], [row["op"] for row in recorded])
    )
    assert [row.index.split("::")[1] for row in rows[ours:]] == [row["op"] for row in recorded[theirs:]]
    assert not different_cells(rows[ours:], recorded[theirs:])


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_flops_are_of_the_batch_and_the_footprint_of_a_sample(batch: int) -> None:
    found = by_name(figures(forward_graph("small_test_net", batch), batch=batch))
    assert found["flops"].theirs == batch * 2_555_904
    assert found["memory_footprint"].shown == 1.0


def test_the_difference_is_explained_term_by_term() -> None:
    found = by_name(figures(forward_graph("resnet18_cifar100")))
    terms = {reason.text.split(":")[0]: reason.amount for reason in found["flops"].reasons}
    assert terms == {"_convolution": 614_400, "batch_norm": 614_400, "relu": 557_056, "avg_pool2d": 512}
    assert found["flops"].difference == 1_786_368 == 557_255_168 - found["flops"].ours
    assert found["memory_footprint"].reasons[-1].amount == 3 * 786_432


@pytest.mark.parametrize(
    ("value", "shown"), [(0.5572, (0.5572, "Giga")), (0.0005, (0.512, "Mega")), (5e-7, (0.524288, "Kilo"))]
)
def test_flops_are_scaled_by_binary_powers(value: float, shown: tuple[float, str]) -> None:
    number, unit = scaled_flops(value)
    assert number == pytest.approx(shown[0])
    assert unit == shown[1]
