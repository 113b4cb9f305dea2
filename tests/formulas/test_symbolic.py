"""Formulas of small workloads by sampling, against fresh captures."""

from __future__ import annotations

import inspect
import itertools
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import pytest

import tensortide
from tensortide import capture, symbolic
from tensortide.errors import ExpressionError, WorkloadError
from tensortide.expr import Expr, parse, text
from tensortide.formulas import Symbolic
from tensortide.formulas.confirm import measured
from tests.clocks import on_a_loaded_machine
from tests.conftest import ROOT
from tests.formulas import workloads

TARGET = f"{workloads.__name__}:"


def assert_formulas_hold(found: Symbolic, workload: Callable[..., Any], *settings: Mapping[str, int]) -> None:
    """The formulas have all totals, and say what captures at the ``settings`` say. That kernels choose their workspace
    by size must be said if it is. What was tested at one value is claimed at no other."""
    single = {name for name, (low, high) in found.formulas.tested.items() if low == high}
    assert single <= {name for c in found.formulas.region if c.relation == "==" for name in c.expr.symbols}
    for setting in settings:
        said = found.evaluate(**setting)
        expected = measured(capture(workload, hyperparameters=setting))
        if any("kernels choose their workspace by size" in remark for remark in found.numeric):
            del expected["peak_with_workspace_bytes"]
        bounds = [said.pop(f"minimal_footprint_{side}_bytes", said["peak_bytes"]) for side in ("lower", "upper")]
        assert said == expected, setting
        assert bounds == sorted(bounds)


def drawn(workload: Callable[..., Any], over: Sequence[str], times: int = 3) -> list[dict[str, int]]:
    dice = random.Random(1)
    defaults = inspect.signature(workload).parameters
    return [{name: dice.randint(2, 2 * defaults[name].default) for name in over} for _ in range(times)]


def total(found: Symbolic, name: str) -> Expr:
    return found.total(name)


def refusals(found: Symbolic) -> list[str]:
    return [note for note in found.notes if "could not be captured" in note]


@cache
def mlp_found() -> Symbolic:
    return symbolic(workloads.mlp, over=("seq", "hidden"), hyperparameters={"batch": 3})


@cache
def deep_found() -> Symbolic:
    return symbolic(workloads.deep, over=("hidden", "layers"))


@cache
def heads_found() -> Symbolic:
    return symbolic(workloads.attention, over=("seq", "heads"), values={"heads": (1, 2, 4, 8)})


def test_sizes() -> None:
    over = ("seq", "hidden")
    found = mlp_found()
    assert found.symbols == over
    assert text(total(found, "parameters")) == "hidden*(8*hidden + 5)"
    assert total(found, "product_flops") == parse("3*(48*seq*hidden**2 - 8*seq*hidden**2)")
    assert (found.held, found.structural, found.numeric, found.unknown, found.notes) == ({}, {}, (), {}, ())
    assert found.formulas.defaults == {"seq": 32, "hidden": 96}
    assert found.settings == {"batch": 3}
    for setting in (*drawn(workloads.mlp, over, 1), {"seq": 7, "hidden": 5}):
        assert (
            found.evaluate(**setting).items()
            >= measured(capture(workloads.mlp, hyperparameters={"batch": 3, **setting})).items()
        )


def test_powers_of_two_and_logarithms_of_sizes() -> None:
    """A heap of the largest compares a logarithm of its size, and code pads to a power of two."""
    over = ("batch", "width", "kept")
    found = symbolic(workloads.chosen, over=over)
    assert text(total(found, "parameters")) == "(2**bits(2*kept - 1))*(width + 1)"
    assert_formulas_hold(found, workloads.chosen, {"kept": 16}, {"batch": 3, "width": 99, "kept": 33}, {})


def test_only_what_is_asked_for_becomes_a_symbol() -> None:
    found = symbolic(workloads.thinned, over=["hidden"], hyperparameters={"dropout": 0.5})
    assert found.symbols == ("hidden",)
    assert found.settings == {"batch": 16, "dropout": 0.5}
    plain, expected = (
        measured(capture(workloads.thinned, hyperparameters={"hidden": 41, "dropout": p})) for p in (0.0, 0.5)
    )
    assert expected.items() <= found.evaluate(hidden=41).items()
    assert expected["flops"] != plain["flops"]


def test_layers_are_repeated_structure() -> None:
    found = deep_found()
    assert list(found.structural) == ["layers"]
    assert "ops against" in found.structural["layers"]
    assert total(found, "parameters") == parse("layers*(hidden**2 + hidden)")
    assert {row.module for row in found.rows} >= {"*.project", "*.bend"}
    assert text(next(row.count for row in found.rows if row.op == "aten.tanh" and row.count is not None)) == "layers"
    assert_formulas_hold(found, workloads.deep, *drawn(workloads.deep, ("hidden", "layers"), 1), {"layers": 9})


def test_illegal_settings_are_skipped_and_the_region_says_so() -> None:
    over = ("hidden", "heads")
    found = symbolic(workloads.parted, over=over)
    (note,) = refusals(found)
    assert "cannot be divided by heads" in note
    assert [c.divisor for c in found.formulas.region if c.divisor] == [(parse("heads"), parse("hidden"))]
    legal = [{**s, "hidden": s["heads"] * s["hidden"]} for s in drawn(workloads.parted, over)]
    assert_formulas_hold(found, workloads.parted, *legal)
    with pytest.raises(ExpressionError, match="do not hold"):
        found.evaluate(hidden=63)


def test_what_is_not_done_within_the_limit_is_held_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("tensortide.search_limit.time.monotonic", lambda: next(ticks))
    found = symbolic(workloads.deep, over=("hidden", "layers"), limit=8)
    assert list(found.held) == ["layers"]
    assert "the time limit of 8 s was reached" in found.held["layers"]
    assert any("before all thresholds were looked for" in note for note in found.notes)
    assert total(found, "parameters") == parse("3*(hidden**2 + hidden)")


@pytest.mark.parametrize(
    ("workload", "over", "captures"),
    [
        pytest.param(workloads.deep, ("hidden", "layers"), 9, marks=pytest.mark.slow),
        (workloads.custom, ("batch", "hidden"), 10_000),
    ],
)
def test_formulas_of_limited_captures_are_the_same_on_a_loaded_machine(
    workload: Callable[..., Any], over: Sequence[str], captures: int
) -> None:
    def find() -> Symbolic:
        return symbolic(workload, over=over, work_limit=captures)

    found = find()
    assert on_a_loaded_machine(find) == found
    said = [*found.notes, *found.held.values()]
    assert any("the limit of 9 captures was reached" in one for one in said) is (captures == 9)


@pytest.mark.slow
def test_a_division_that_must_be_exact_is_found_where_nothing_asks() -> None:
    over = ("batch", "image", "patch", "hidden", "heads", "layers")
    found = symbolic(workloads.patches, over=over)
    assert (found.held, list(found.structural)) == ({}, ["layers"])
    assert [c.divisor for c in found.formulas.region if c.divisor] == [(parse("heads"), parse("hidden"))]
    for setting in ({"image": 35, "patch": 6, "hidden": 36, "heads": 3}, {"batch": 3, "image": 64, "layers": 5}):
        truth = measured(capture(workloads.patches, hyperparameters=setting))
        said = found.evaluate(**setting)
        assert {name: said[name] for name in truth.keys() & said.keys()} == {
            name: truth[name] for name in truth.keys() & said.keys()
        }
        assert "peak_bytes" in said


@pytest.mark.slow
def test_what_makes_another_size_one_changes_no_structure() -> None:
    over = ("batch", "seq", "hidden", "heads", "layers")
    found = symbolic(workloads.toy, over=over)
    assert (found.held, list(found.structural)) == ({}, ["layers"])
    assert_formulas_hold(found, workloads.toy, {"hidden": 96, "heads": 12, "layers": 3}, {"seq": 40, "layers": 4})


def test_at_one_a_step_may_be_another() -> None:
    """Where all heads are one, no copy brings them together."""
    found = heads_found()
    assert any("at heads=1 the step is another one" in note for note in found.notes)
    assert "heads > 1" in map(str, found.formulas.only["bytes"])
    assert "heads > 1" in [str(threshold.condition) for threshold in found.thresholds]


def test_totals_hold_at_sizes_of_one_that_leave_them_alike() -> None:
    """A copy has no FLOPs: those are claimed where it is saved, its bytes are not."""
    found = heads_found()
    for setting in ({"heads": 1}, {"seq": 1}, {"seq": 1, "heads": 1}, {"seq": 1, "heads": 8}):
        said, true = found.evaluate(**setting), measured(capture(workloads.attention, hyperparameters=setting))
        assert said == {name: true[name] for name in said}
        assert said.keys() >= {"parameters", "flops", "io_bytes"}
        assert not said.keys() & {"bytes", "peak_bytes"}


def test_a_default_of_one_has_formulas_of_its_own() -> None:
    found = symbolic(workloads.attention, over=("batch",), hyperparameters={"batch": 1})
    assert [str(threshold.condition) for threshold in found.thresholds] == ["batch > 1"]
    for setting in ({"batch": 1}, {"batch": 3}):
        said, true = found.evaluate(**setting), measured(capture(workloads.attention, hyperparameters=setting))
        assert {name: said.get(name, number) for name, number in true.items()} == true
        assert said.keys() >= {"parameters", "flops", "io_bytes"}


@pytest.mark.slow
def test_defaults_of_one_have_formulas_of_their_own_beside_other_sizes() -> None:
    found = symbolic(workloads.attention, over=("batch", "seq"), hyperparameters={"batch": 1})
    assert [str(threshold.condition) for threshold in found.thresholds] == ["batch > 1", "seq > 1"]
    assert_formulas_hold(found, workloads.attention, {"batch": 1}, {"batch": 1, "seq": 7}, {"batch": 3, "seq": 9})


def test_refusals_without_a_reason_cost_few_captures() -> None:
    """Once settings were found with care only, the next are drawn with care at once."""
    found = symbolic(workloads.skipping, over=("batch", "image"))
    assert found.captures <= 32
    assert_formulas_hold(found, workloads.skipping, {"batch": 3, "image": 40})


def test_declared_conditions_leave_nothing_to_find_out() -> None:
    found = symbolic(workloads.declared, over=("hidden", "heads"))
    assert refusals(found) == []
    assert found.captures <= 14
    assert_formulas_hold(found, workloads.declared, {"hidden": 40, "heads": 8})


def test_conditions_and_values_may_come_with_the_question() -> None:
    found = symbolic(
        workloads.split,
        over=["hidden", "heads"],
        where=["hidden % heads == 0"],
        values={"hidden": (24, 36, 48, 60, 72)},
    )
    assert refusals(found) == []
    assert_formulas_hold(found, workloads.split, {"hidden": 56, "heads": 7})


def test_rounded_sizes() -> None:
    found = symbolic(workloads.conv, over=("image",))
    assert "ceil(image/2)" in text(total(found, "product_flops"))
    assert_formulas_hold(found, workloads.conv, *({"image": image} for image in (*range(40, 46), 224, 31)))


def test_the_smaller_of_two() -> None:
    over = ("seq", "window")
    found = symbolic(workloads.windowed, over=over)
    sides = [found.formulas, *found.formulas.others]
    assert [f.totals["product_flops"] for f in sides] == [parse(f"2*8*32**2*{n}") for n in ("window", "seq")]
    settings: list[dict[str, int]] = [{"seq": 9, "window": 30}, {"seq": 30, "window": 9}, {"seq": 12, "window": 12}, {}]
    assert_formulas_hold(found, workloads.windowed, *settings)


def test_a_structure_without_a_formula_is_held_with_the_reason() -> None:
    found = symbolic(workloads.erratic, over=("hidden", "code"))
    assert found.symbols == ("hidden",)
    assert found.settings["code"] == 5
    assert "ops against" in found.held["code"]
    assert "no formula" in found.held["code"]
    assert_formulas_hold(found, workloads.erratic, {"hidden": 7}, {"hidden": 2})


def test_an_op_without_a_rule_is_named() -> None:
    found = symbolic(workloads.custom, over=("batch", "hidden"))
    assert found.unknown == {"tests_formulas.blend.default": 1}
    assert total(found, "product_flops") == parse("2*batch*hidden**2")


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (["hiden"], "there is no hyperparameter 'hiden' .* batch, seq, hidden"),
        (["dropout"], r"dropout is a float \(0.0\): only hyperparameters that are integers"),
        (["batch"], "only one legal setting|no legal setting"),
    ],
)
def test_what_cannot_be_a_symbol(over: list[str], message: str) -> None:
    where = ["batch == 64"] if over == ["batch"] else []
    with pytest.raises(WorkloadError, match=message):
        symbolic(workloads.mlp, over=over, where=where)


def test_nothing_legal_is_an_error_that_says_what_to_do() -> None:
    def never(batch: int = 4) -> Callable[[], None]:
        raise ValueError("not today")

    with pytest.raises(WorkloadError, match=r"no legal setting of batch(.|\n)*not today(.|\n)*--condition"):
        symbolic(never, over=["batch"])


@pytest.mark.slow
def test_the_same_question_has_the_same_answer() -> None:
    command = [sys.executable, "-m", "tensortide", "count", f"{TARGET}attention", "--symbols", "all", "--json"]
    runs = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    one, other = (run.communicate()[0] for run in runs)
    assert one == other
    assert '"hidden*(hidden + 1)"' in one


def test_a_target_by_name_and_the_public_names() -> None:
    found = tensortide.symbolic(f"{TARGET}custom", over=["batch"])
    assert found.formulas.workload == f"{TARGET}custom"


def test_rows_add_up_to_totals() -> None:
    for found in (mlp_found(), deep_found()):
        for measure in ("flops", "bytes", "product_flops", "elementwise_flops"):
            for groups in (found.by_phase(measure), found.by_op(measure)):
                assert sum((e for e in groups.values() if e is not None), start=parse("0")) == total(found, measure)
    assert len(mlp_found().by_phase("flops")) == 3
    modules = deep_found().by_module()
    assert modules["*"] == sum((modules[f"*.{name}"] or parse("0") for name in ("project", "bend")), start=parse("0"))


def test_the_peak_is_that_of_a_regime() -> None:
    for found in (mlp_found(), deep_found()):
        largest = max(regime.bytes.evaluate(found.formulas.defaults) for regime in found.regimes)
        assert largest == found.evaluate()["peak_bytes"]
        assert found.regime(hidden=2).bytes in [regime.bytes for regime in found.regimes]
        low, high = found.reach("hidden")
        default = found.formulas.defaults["hidden"]
        assert low <= default
        assert high is None or high >= default


@pytest.mark.slow
def test_odd_numbers_of_layers_tell_no_halves_apart() -> None:
    found = symbolic(workloads.odd, over=["batch", "hidden", "layers"], values={"layers": [3, 5, 7, 9, 11]})
    assert "follow no formula in it" in found.held["layers"]
    assert_formulas_hold(found, workloads.odd, {"batch": 5, "hidden": 7}, {})


@pytest.mark.slow
def test_what_is_another_step_where_a_size_is_its_divisor() -> None:
    found = symbolic(workloads.halves, over=["hidden", "heads"], values={"heads": (2, 4, 8)})
    assert "hidden > 2*heads" in [str(condition) for condition in found.formulas.only["bytes"]]
    assert_formulas_hold(found, workloads.halves, {"hidden": 12, "heads": 3}, {}, {"hidden": 16, "heads": 8})
