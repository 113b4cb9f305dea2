"""Formulas on both sides of a threshold: what they say together, and answers outside of what was tested."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from tensortide import capture, footprint, symbolic
from tensortide.errors import ExpressionError, Unsearched
from tensortide.expr import parse, parse_condition
from tensortide.formulas import (
    Formulas,
    Partial,
    Symbolic,
    Threshold,
    asymptotics,
    confirm,
    load_formulas,
    save_formulas,
    shares,
    solve,
    sweep,
)
from tensortide.formulas.confirm import measured
from tests.formulas.samples import made


def widened(hidden: int = 8, batch: int = 2) -> Callable[[], None]:
    """A Linear, and beyond 64 a LayerNorm."""
    wide = [nn.LayerNorm(hidden)] if hidden > 64 else []
    model, x = nn.Sequential(nn.Linear(hidden, hidden), *wide), torch.zeros(batch, hidden)
    return lambda: model(x).sum().backward()


def norm() -> Formulas:
    """Parameters and input bytes of ``widened``."""
    defaults = {"hidden": 8, "batch": 2}
    wide = made({"parameters": "hidden**2 + 3*hidden", "io_bytes": "4*batch*hidden"}, defaults, "hidden > 64")
    wide = msgspec.structs.replace(wide, tested={"hidden": (65, 512), "batch": (1, 8)})
    small = made({"parameters": "hidden**2 + hidden", "io_bytes": "4*batch*hidden"}, defaults, "hidden <= 64")
    threshold = Threshold(condition=parse_condition("hidden <= 64"), change="a LayerNorm appears in *")
    tested = {"hidden": (1, 64), "batch": (1, 8)}
    return msgspec.structs.replace(small, others=(wide,), thresholds=(threshold,), tested=tested)


def alone() -> Formulas:
    return msgspec.structs.replace(norm(), others=())


def parameters(hidden: int) -> int:
    """Count them."""
    return hidden * hidden + hidden + (2 * hidden if hidden > 64 else 0)


def symbolic_of(formulas: Formulas) -> Symbolic:
    return Symbolic(formulas=formulas, rows=())


def test_each_side_has_its_values() -> None:
    formulas = norm()
    for hidden in (1, 64, 65, 2048):
        assert formulas.evaluate(hidden=hidden)["parameters"] == parameters(hidden)
        assert formulas.at(hidden=hidden).evaluate()["parameters"] == parameters(hidden)
        parts = shares(formulas, "parameters", hidden=hidden)
        assert sum(share.value for share in parts) == parameters(hidden)
    assert formulas.at(hidden=65).evaluate(hidden=8)["parameters"] == parameters(8)
    with pytest.raises(ExpressionError, match=r"they need hidden <= 64 \(above hidden = 64: a LayerNorm app"):
        alone().evaluate(hidden=65)


def test_the_peak_of_another_side_is_not_claimed() -> None:
    with pytest.raises(ExpressionError, match="they need hidden <= 64"):
        symbolic_of(norm()).regime(hidden=65)


def test_a_path_crosses_too() -> None:
    formulas = norm().along({"hidden": "32*batch"})
    assert formulas.evaluate(batch=2)["parameters"] == parameters(64)
    assert formulas.evaluate(batch=3)["parameters"] == parameters(96)
    assert formulas.extrapolated({"batch": 3}) == {}
    assert formulas.extrapolated({"batch": 17}) == {"32*batch": (65, 512), "batch": (1, 8)}


def test_a_sweep_crosses_and_says_where() -> None:
    table = sweep(norm(), {"hidden": [64, 128, 1024]})
    assert table.column("parameters") == [parameters(64), parameters(128), parameters(1024)]
    assert [point.threshold for point in table.points] == ["", *["above hidden = 64: a LayerNorm appears in *"] * 2]
    assert [point.extrapolated for point in table.points] == ["", "", "hidden (tested 65 to 512)"]
    assert table.rows()[2]["extrapolated"]
    outside = sweep(alone(), {"hidden": [64, 65]}).points[1]
    assert "LayerNorm" in outside.outside
    assert set(outside.totals) == {None}


@pytest.mark.parametrize("limit", [2, 500, 4159, 4160, 4161, 4419, 4420, 4421, 90_000, 10**6])
def test_every_piece_is_searched(limit: int) -> None:
    """Against trying every value; none has from 4,161 to 4,419 parameters."""
    met = [hidden for hidden in range(1, 1100) if parameters(hidden) <= limit]
    found = solve(norm(), "hidden", f"parameters <= {limit}")
    assert (found.value, found.reached, found.limited_by) == (max(met), parameters(max(met)), "")
    assert list(found.neighbour or ()) == [found.value + 1, parameters(found.value + 1)]
    smallest = solve(norm(), "hidden", f"parameters > {limit}")
    assert (smallest.kind, smallest.value) == ("smallest", max(met) + 1)
    nearest = min(range(1, 1100), key=lambda hidden: abs(parameters(hidden) - limit))
    assert solve(norm(), "hidden", f"parameters = {limit}").value == nearest


def test_what_no_piece_reaches() -> None:
    with pytest.raises(ExpressionError, match="no hidden reaches"):
        solve(norm(), "hidden", "parameters <= 1")


def test_the_condition_that_limits_is_named() -> None:
    found = solve(alone(), "hidden", "parameters <= 1M")
    assert (found.value, found.neighbour) == (64, None)
    assert found.limited_by == "hidden <= 64 (above hidden = 64: a LayerNorm appears in *)"
    seq = solve(made({"flops": "seq"}, {"seq": 1, "positions": 90}, "seq <= positions"), "seq", "flops <= 100")
    assert (seq.value, seq.limited_by) == (90, "seq <= positions")
    heads = solve(made({"flops": "1"}, {"heads": 1, "hidden": 12}, "hidden % heads == 0"), "heads", "flops <= 1")
    assert (heads.value, heads.limited_by) == (12, "hidden % heads == 0")


def test_where_nothing_limits_the_tested_range_does() -> None:
    found = solve(norm(), "batch", "parameters <= 1M")
    assert (found.value, found.limited_by, found.unlimited) == (8, "the tested range, batch <= 8", True)


def test_answers_outside_of_what_was_tested_say_so() -> None:
    assert solve(norm(), "hidden", "parameters <= 1M").extrapolated == {"hidden": (65, 512)}
    assert solve(norm(), "hidden", "parameters <= 90000").extrapolated == {}


def test_growth_is_that_beyond_the_threshold() -> None:
    found = asymptotics(norm(), "hidden")
    assert "of the other side are used: above hidden = 64: a LayerNorm appears in *" in found.notes[0]
    assert found["parameters"].next == parse("3*hidden")
    assert "end at hidden <= 64" in asymptotics(alone(), "hidden").notes[0]


def test_a_solution_is_captured_before_it_is_proved() -> None:
    found = solve(norm(), "hidden", "parameters <= 10000")
    assert not found.proved
    checked = confirm(found, symbolic_of(norm()), widened)
    assert (checked.proved, checked.captured) == (True, (98, 99))
    file = solve(norm(), "hidden", "parameters <= 10000")
    assert "formulas alone" in file.unchecked


def test_a_wrong_answer_is_no_answer() -> None:
    without = made({"parameters": "hidden**2 + hidden"}, {"hidden": 8, "batch": 2})
    found = solve(without, "hidden", "parameters <= 10000")
    with pytest.raises(ExpressionError, match=r"WRONG at hidden=99, batch=2: parameters is 10,098 in a capture, 9,900"):
        confirm(found, symbolic_of(without), widened)
    at_the_edge = solve(without, "hidden", f"parameters <= {parameters(64)}")
    with pytest.raises(ExpressionError, match="WRONG at hidden=65"):
        confirm(at_the_edge, symbolic_of(without), widened)


def test_where_only_the_formulas_end_nothing_is_proved() -> None:
    """Beyond 16 the workload goes on; a workload that refuses 17 proves that 16 is the largest."""

    def short(hidden: int = 8, batch: int = 2) -> Callable[[], None]:
        if hidden > 16:
            raise ValueError("hidden is at most 16")
        return widened(hidden, batch)

    ended = made({"parameters": "hidden**2 + hidden"}, {"hidden": 8, "batch": 2}, "hidden <= 16")
    found = solve(ended, "hidden", "parameters <= 380")
    assert (found.value, found.limited_by, found.skipped) == (16, "hidden <= 16", 17)
    checked = confirm(found, symbolic_of(ended), widened)
    assert (checked.proved, checked.unchecked) == (
        False,
        "hidden = 17 can be captured too, and no formulas hold there",
    )
    assert confirm(found, symbolic_of(ended), short).proved


def test_bounds_of_the_least_memory_are_captured_too() -> None:
    def bounds(upper: str) -> Formulas:
        return made({"minimal_footprint_upper_bytes": upper}, {"hidden": 8, "batch": 2}, "hidden <= 64")

    exact = footprint(capture(widened), workspace=False).upper_bytes
    found = solve(bounds("hidden + 1"), "hidden", "minimal_footprint_upper_bytes <= 9")
    with pytest.raises(ExpressionError, match=r"minimal_footprint_upper_bytes is 9 by the formulas, the least memory"):
        confirm(found, symbolic_of(bounds("hidden + 1")), widened)
    loose = bounds(f"{exact}*hidden")
    checked = confirm(
        solve(loose, "hidden", f"minimal_footprint_upper_bytes <= {8 * exact}"), symbolic_of(loose), widened
    )
    assert not checked.proved
    assert "need not be the least memory" in checked.unchecked


def test_what_the_workload_refuses_is_no_answer() -> None:
    def even(hidden: int = 8, batch: int = 2) -> Callable[[], None]:
        if hidden % 2:
            raise ValueError("hidden must be even")
        return widened(hidden, batch)

    with pytest.raises(ExpressionError, match="no answer: no capture at hidden=99"):
        confirm(solve(norm(), "hidden", "parameters <= 10197"), symbolic_of(norm()), even)
    beyond = confirm(solve(norm(), "hidden", "parameters <= 10000"), symbolic_of(norm()), even)
    assert (beyond.proved, beyond.captured) == (False, (98,))
    assert "hidden = 99 cannot be captured" in beyond.unchecked


def test_a_number_in_the_place_of_a_symbol_has_no_tested_range() -> None:
    assert dict(norm().along({"batch": 5}).tested) == {"hidden": (1, 64)}


def test_the_regions_of_the_pieces_are_alternatives() -> None:
    band = msgspec.structs.replace(norm().others[0], region=(parse_condition("hidden > 70"),))
    with pytest.raises(Unsearched, match="only where hidden <= 64, or where hidden > 70"):
        solve(msgspec.structs.replace(norm(), others=(band,)), "hidden", "parameters <= 1")


def test_files_have_it_all(tmp_path: Path) -> None:
    part = Partial(known=parse("2*hidden"), missing={"aten.topk in (outside), forward": 7})
    formulas = msgspec.structs.replace(norm(), partial={"flops": part})
    assert load_formulas(save_formulas(formulas, tmp_path / "f.json")) == formulas


def tapered(batch: int = 4, width: int = 40, depth: int = 2) -> Callable[[], None]:
    """Layers that halve, but to no less than 8: no formula in their number has the sizes of all."""
    sizes = [max(8, width >> i) for i in range(depth + 1)]
    model = nn.Sequential(*[nn.Linear(a, b) for a, b in itertools.pairwise(sizes)])
    x = torch.zeros(batch, width)
    return lambda: model(x).sum().backward()


@pytest.mark.slow
def test_a_structure_without_formulas_is_held() -> None:
    """Totals that follow no formula in the number of layers have one while it is the workload's own."""
    found = symbolic(tapered, over=["batch", "width", "depth"])
    assert set(found.held) == {"depth"}
    assert "with other values" in found.held["depth"]
    for setting in ({}, {"batch": 7, "width": 300}, {"batch": 1, "width": 41}):
        true = measured(capture(tapered, hyperparameters=setting))
        said = found.evaluate(**setting)
        assert {name: said[name] for name in true.keys() & said.keys()} == {
            n: true[n] for n in true.keys() & said.keys()
        }
        assert {"parameters", "flops", "bytes", "footprint_bytes"} <= said.keys()


def test_totals_that_single_settings_add() -> None:
    """Where formulas lack a total that others have, these answer; elsewhere nothing is said of it."""
    general = made({"parameters": "hidden**2*layers"}, {"hidden": 8, "layers": 2}, "hidden >= 1")
    own = made({"parameters": "2*hidden**2", "peak_bytes": "9*hidden"}, {"hidden": 8, "layers": 2}, "layers == 2")
    both = msgspec.structs.replace(general, others=(own,))
    assert both.evaluate(hidden=3) == {"parameters": 18, "peak_bytes": 27}
    assert both.evaluate(hidden=3, layers=4) == {"parameters": 36}
    assert solve(both, "hidden", "peak_bytes <= 90").value == 10


def test_single_totals_at_one_come_from_formulas_that_have_them() -> None:
    """Formulas that hold but not for all totals give way to those that have more."""
    larger = made({"parameters": "heads + 5", "bytes": "7*heads"}, {"heads": 4}, "heads >= 1")
    larger = msgspec.structs.replace(larger, only={"bytes": (parse_condition("heads > 1"),)})
    one = made({"parameters": "6", "bytes": "5"}, {"heads": 4}, "heads == 1")
    assert larger.evaluate(heads=1) == {"parameters": 6}
    both = msgspec.structs.replace(larger, others=(one,))
    assert both.evaluate(heads=1) == {"parameters": 6, "bytes": 5}
    assert both.evaluate(heads=2) == {"parameters": 7, "bytes": 14}
