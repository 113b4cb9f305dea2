"""Sweeps: exact at every point, points outside the region marked, in several forms."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tensortide.errors import ExpressionError
from tensortide.formulas import geometric, sweep
from tensortide.formulas.sweep import axis
from tests.formulas.samples import transformer, word_lm

NAMES = {"parameters": "parameters", "flops": "flops", "bytes": "bytes", "footprint": "footprint_bytes"}


def test_the_reference_sweep(reference: Path) -> None:
    """76 points, every total as recorded, in no time."""
    recorded = json.loads((reference / "catamount" / "formulas.json").read_text())["word_lm"]["sweep"]
    formulas = word_lm()
    start = time.perf_counter()
    table = sweep(formulas, {"h": [point["x"] for point in recorded["points"]]}, **recorded["bindings"])
    assert time.perf_counter() - start < 0.5
    assert len(table.points) == 76
    for row, point in zip(table.rows(), recorded["points"], strict=True):
        assert {name: row[ours] for name, ours in NAMES.items()} == {name: point[name] for name in NAMES}


def test_every_point_is_what_evaluate_says() -> None:
    formulas = transformer()
    table = sweep(formulas, {"batch": [1, 4], "hidden": range(720, 800, 24)}, seq=256)
    assert table.over == ("batch", "hidden")
    assert table.fixed["seq"] == 256
    for point in table.points:
        assert dict(zip(table.totals, point.totals, strict=True)) == formulas.evaluate(
            batch=point.at[0], hidden=point.at[1], seq=256
        )


def test_points_outside_are_marked_not_dropped() -> None:
    table = sweep(transformer(), {"hidden": [768, 770, 780]})
    assert [bool(point.outside) for point in table.points] == [False, True, False]
    assert table.column("flops")[1] is None
    assert table.column("hidden") == [768, 770, 780]
    assert "heads" in table.rows()[1]["outside"]
    assert "outside" not in table.rows()[0]


def test_axes() -> None:
    assert axis("hidden=256:2048:*2") == ("hidden", (256, 512, 1024, 2048))
    assert axis("seq = 128:640:128") == ("seq", (128, 256, 384, 512, 640))
    assert axis("batch=2:4") == ("batch", (2, 3, 4))
    assert axis("batch=1, 8,3") == ("batch", (1, 8, 3))
    assert axis("b=1:10:*1.5") == ("b", geometric(1, 10, 1.5)) == ("b", (1, 2, 3, 5, 8))
    for bad in ("hidden", "hidden=", "hidden=1..2", "h=1:2:0", "h=1:9:1.5", "h=1:9:*1", "h=1:9999999999"):
        with pytest.raises(ExpressionError):
            axis(bad)


def test_wrong_use() -> None:
    for over, fixed in (({"hiden": [1]}, {}), ({"hidden": [0]}, {}), ({"hidden": [1]}, {"hidden": 2})):
        with pytest.raises(ExpressionError):
            sweep(transformer(), over, **fixed)
    with pytest.raises(ExpressionError, match="too large"):
        sweep(transformer(), {"hidden": range(1, 2000), "batch": range(1, 2000)})
