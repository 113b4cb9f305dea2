"""Sweeps: exact at every point, points outside the region marked, in several forms."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import ExpressionError
from tensortide.executors import LOCAL, Where
from tensortide.formulas import Formulas, geometric, sweep
from tensortide.formulas.sweep import Sweep, axis
from tests.formulas.samples import transformer, word_lm

NAMES = {"parameters": "parameters", "flops": "flops", "bytes": "bytes", "footprint": "footprint_bytes"}


def test_the_reference_sweep(reference: Path) -> None:
    """76 points, every total as recorded, in no time."""
    recorded = json.loads((reference / "catamount" / "formulas.json").read_text())["word_lm"]["sweep"]
    formulas = word_lm()
    start = time.process_time()
    table = sweep(formulas, {"h": [point["x"] for point in recorded["points"]]}, **recorded["bindings"])
    assert time.process_time() - start < 0.5
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


class Killing:
    """Formulas whose worker, any process but ``parent``, is killed at one point, once."""

    def __init__(self, formulas: Formulas, folder: Path) -> None:
        self.formulas, self.folder, self.parent = formulas, folder, os.getpid()

    def __getattr__(self, name: str) -> Any:
        if name == "formulas":
            raise AttributeError(name)
        return getattr(self.formulas, name)

    def totals_at(self, setting: Mapping[str, int]) -> Any:
        if setting["batch"] == 700 and os.getpid() != self.parent:
            with contextlib.suppress(FileExistsError):
                (self.folder / "killed").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return self.formulas.totals_at(setting)


OVER = {"hidden": [768, 770, 1536], "batch": range(1, 3001), "seq": [128, 256, 512]}


@pytest.fixture(scope="module")
def alone() -> Sweep:
    return sweep(transformer(), OVER)


def test_points_are_those_of_all_combinations_in_order(alone: Sweep) -> None:
    assert [point.at for point in alone.points] == [*itertools.product(*OVER.values())]
    some = alone.points[13_000]
    assert sweep(transformer(), {name: [value] for name, value in zip(OVER, some.at, strict=True)}).points == (some,)


@pytest.mark.slow
@pytest.mark.parametrize("where", [Where(2, "threads"), Where(2), Where(2, cluster=LOCAL)])
def test_a_sweep_side_by_side_is_the_same_where_a_worker_is_killed(tmp_path: Path, alone: Sweep, where: Where) -> None:
    told: list[str] = []
    killing: Any = Killing(transformer(), tmp_path)
    assert sweep(killing, OVER, where, told.append) == alone
    assert (tmp_path / "killed").exists() is (where.kind == "processes")
    assert told[-1] == "27,000 of 27,000 points"
