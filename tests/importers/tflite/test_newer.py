"""Operators that came with StableHLO: their options are read, and they cost what the same work costs elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensortide
from tensortide.cost import count
from tests.cost.probe import cost_of, cost_of_call, tensor
from tests.importers.tflite.written import Written, model_of


def counted(folder: Path, *model: Any) -> Any:
    path = folder / "written.tflite"
    path.write_bytes(model_of(*model)[1])
    return count(tensortide.open(path).graph, strict=True).total


def test_a_contraction_is_as_large_as_its_options_say(tmp_path: Path) -> None:
    dims = {0: ("q", [0]), 1: ("q", [0]), 2: ("q", [1, 3]), 3: ("q", [2, 1])}
    op = Written("STABLEHLO_DOT_GENERAL", [0, 1], [2], dims)
    found = counted(tmp_path, [op], [[2, 3, 5, 7], [2, 7, 3, 4], [2, 5, 4]], [0, 1], [2])
    assert found.macs == 2 * 5 * 4 * 3 * 7


def test_a_convolution_by_its_options_costs_what_torch_does(tmp_path: Path) -> None:
    x, w = torch.randn(2, 6, 9, 8), torch.randn(4, 3, 3, 2)
    known = cost_of(lambda: torch.conv2d(x, w, groups=2))
    options = {7: ("q", [1, 2]), 8: ("q", 2), 9: ("q", 3), 10: ("q", [0, 1]), 13: ("q", [1, 2]), 14: ("q", 2)}
    op = Written("STABLEHLO_CONVOLUTION", [0, 1], [2], options)
    found = counted(tmp_path, [op], [[2, 9, 8, 6], [3, 2, 3, 4], [2, 7, 7, 4]], [0, 1], [2])
    assert found.macs == known.macs


def test_a_dilated_convolution_costs_what_a_transposed_one_does(tmp_path: Path) -> None:
    x, w = torch.randn(2, 6, 9, 8), torch.randn(6, 4, 3, 2)
    known = cost_of(lambda: torch.conv_transpose2d(x, w, stride=2))
    options = {2: ("q", [2, 2]), 7: ("q", [1, 2]), 9: ("q", 3), 13: ("q", [1, 2])}
    op = Written("STABLEHLO_CONVOLUTION", [0, 1], [2], options)
    found = counted(tmp_path, [op], [[2, 9, 8, 6], [3, 2, 6, 4], [2, 19, 16, 4]], [0, 1], [2])
    assert found.macs == known.macs


def test_a_composite_is_its_subgraph(tmp_path: Path) -> None:
    op = Written("STABLEHLO_COMPOSITE", [0], [1], {1: ("i", 1)})
    body = [Written("STABLEHLO_TANH", [0], [1], {}), Written("STABLEHLO_ADD", [1, 1], [2], {})]
    found = counted(tmp_path, [op], [[3, 5], [3, 5]], [0], [1], (body, [[3, 5]] * 3, [0], [2]))
    assert found.cost.elementwise_flops == 2 * 15


def test_windows_and_boundaries_are_as_many_as_options_say(tmp_path: Path) -> None:
    op = Written("STABLEHLO_REDUCE_WINDOW", [0, 1], [2], {0: ("q", [1, 2, 3])})
    found = counted(tmp_path, [op], [[2, 6, 9], [], [2, 5, 7]], [0, 1], [2])
    assert found.cost.elementwise_flops == 5 * 2 * 5 * 7
    assert (
        cost_of_call("tflite.BUCKETIZE", {"x": tensor(5), "boundaries": (0.0, 1.0, 2.0)}, tensor(5)).comparisons
        == 2 * 5
    )


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(1, 9))
def test_a_sort_costs_what_torch_does(outer: list[int], n: int) -> None:
    shape = (*outer, n)
    known = cost_of(lambda: torch.sort(torch.zeros(shape)))
    found = cost_of_call("tflite.STABLEHLO_SORT", {"x": tensor(*shape), "dimension": len(outer)}, tensor(*shape))
    assert found.comparisons == known.comparisons


def test_selections_count_every_pair() -> None:
    boxes, scores, kept = tensor(7, 4), tensor(7), tensor(3, dtype="int32")
    hard = cost_of_call("tflite.NON_MAX_SUPPRESSION_V4", {"boxes": boxes, "scores": scores}, kept)
    soft = cost_of_call("tflite.NON_MAX_SUPPRESSION_V5", {"boxes": boxes, "scores": scores}, kept)
    assert (hard.elementwise_flops, soft.elementwise_flops) == (14 * 21 + 7, 17 * 21 + 7)


def test_both_directions_of_a_recurrent_layer_count() -> None:
    sides = {"weights": tensor(6, 4), "recurrent": tensor(6, 6), "weights_back": tensor(5, 4)}
    given = {"input": tensor(3, 2, 4), **sides, "recurrent_back": tensor(5, 5)}
    found = cost_of_call("tflite.BIDIRECTIONAL_SEQUENCE_RNN", given, tensor(3, 2, 6))
    assert found.macs == 3 * 2 * (6 * (4 + 6) + 5 * (4 + 5))


@pytest.mark.parametrize("name", ["UNSORTED_SEGMENT_MAX", "UNIQUE", "WHERE", "STABLEHLO_SCATTER", "STABLEHLO_REDUCE"])
def test_bounds_say_that_they_are(name: str) -> None:
    found = cost_of_call(f"tflite.{name}", {"x": tensor(3, 5), "y": tensor(3, 5)}, tensor(3))
    assert not found.exact
    assert found.elementwise_flops >= math.prod((3, 5)) - 3
