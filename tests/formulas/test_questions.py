"""Questions that name what there is not are refused at once, and answers beyond what was tested say so."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from tensortide import capture, count, symbolic
from tensortide.cli import console
from tensortide.errors import DataDependent, ExpressionError, WorkloadError
from tensortide.expr import parse, parse_condition, symbol
from tensortide.formulas import Formulas, Partial, confirm, solve, sweep
from tensortide.formulas.sweep import axis
from tensortide.formulas.target import check_target

Step = Callable[[], Tensor]


def layer(batch: int = 32, heads: int = 4, hidden: int = 16, rate: float = 0.5) -> Step:
    model, x = nn.Linear(hidden, heads), torch.zeros(batch, hidden)

    def step() -> Tensor:
        loss: Tensor = (rate * model(x)).sum()
        loss.backward()
        return loss

    return step


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"where": ["batch % heds == 0"]},
            "'batch % heds == 0': there is no hyperparameter 'heds'.*did you mean heads",
        ),
        ({"where": ["rate >= 1"]}, "rate is a float"),
        ({"where": ["batch > 5000"]}, "batch=32 does not meet the condition 'batch > 5000'.*--set batch="),
        ({"where": ["batch > 9", "batch < 40", "batch < 5"]}, "found no batch that meets batch > 9 and .*batch < 5"),
        ({"values": {"hiden": [1, 2]}}, "values of hiden: .*did you mean hidden"),
        ({"values": {"batch": [0]}}, "must be positive integers"),
    ],
    ids=["name", "kind", "defaults", "contradiction", "values", "zero"],
)
def test_conditions_and_values_are_of_integers_there_are(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        symbolic(layer, over=["batch"], **asked)


def test_a_condition_may_name_what_is_no_symbol() -> None:
    assert "parameters" in symbolic(layer, over=["batch"], where=["batch % heads == 0"]).formulas.totals


def selected(batch: int = 32, hidden: int = 16) -> Step:
    model, x = nn.Linear(hidden, hidden), torch.zeros(batch, hidden)

    def step() -> Tensor:
        y = model(x)
        loss: Tensor = y[y > 0].sum()
        return loss

    return step


LINE = f"test_questions.py:{inspect.getsourcelines(selected)[1] + 5}"


def test_sizes_that_depend_on_data_are_asked_for_by_line() -> None:
    with pytest.raises(DataDependent, match=rf"--assume '.*{LINE}=NUMBER'"):
        symbolic(selected, over=["batch"])
    with pytest.raises(WorkloadError, match=rf"assumed at {LINE}: .*'hiden'.*did you mean hidden"):
        symbolic(selected, over=["batch"], assume={LINE: "batch*hiden"})


def test_what_is_assumed_may_be_in_hyperparameters() -> None:
    """Half of the outputs are positive: the sum of the selected ones takes one addition less than there are."""
    assume = {LINE: "floor(batch*hidden/2)"}
    found = symbolic(selected, over=["batch", "hidden"], assume=assume)
    plain = count(capture(selected, hyperparameters={"batch": 24, "hidden": 9}, assume={LINE: 108}, real=False))
    assert found.evaluate(batch=24, hidden=9)["flops"] == plain.total.flops
    solution = confirm(solve(found.formulas, "batch", "bytes <= 1MiB"), found, selected, assume=assume)
    assert solution.captured == (solution.value, solution.value + 1)


def test_totals_say_that_they_are_extrapolated() -> None:
    formulas = Formulas(totals={"flops": 2 * symbol("n")}, defaults={"n": 3}, tested={"n": (1, 100)})
    assert not formulas.evaluate(n=100).extrapolated
    totals = formulas.evaluate(n=1000)
    assert totals == {"flops": 2000}
    assert totals.extrapolated == {"n": (1, 100)}
    assert repr(totals) == "{'flops': 2000}  # extrapolated: n (tested 1 to 100)"


def padded() -> Formulas:
    """Formulas that were tested with a padding of 0, as far as a batch of 64."""
    total = {"bytes": parse("batch*(length + 2*padding)"), "peak_bytes": parse("batch*length")}
    return Formulas(
        totals=total,
        defaults={"batch": 4, "length": 9, "padding": 1},
        region=(parse_condition("length >= 3"),),
        only={"peak_bytes": (parse_condition("length <= 4"),)},
        tested={"batch": (1, 64), "length": (3, 99), "padding": (0, 31)},
        partial={"flops": Partial(known=parse("batch"), missing={"aten.topk in the model (forward)": 7})},
    )


def test_0_is_a_value_where_it_was_tested() -> None:
    assert padded().evaluate(padding=0)["bytes"] == 36
    assert not padded().evaluate(padding=0).extrapolated
    assert sweep(padded(), dict([axis("padding=0,1,2")])).column("bytes") == [36, 44, 52]
    assert axis("padding=0:2") == ("padding", (0, 1, 2))
    with pytest.raises(ExpressionError, match="batch must be a positive integer, not 0"):
        padded().evaluate(batch=0)
    with pytest.raises(ExpressionError, match="padding must be an integer of at least 0, not -1"):
        padded().evaluate(padding=-1)


def test_a_total_that_is_not_claimed_is_not_taken_for_all() -> None:
    """The formulas hold at a length of 9, the peak alone is not claimed there."""
    with pytest.raises(ExpressionError, match=r"peak_bytes is claimed for no batch at .*: it needs length <= 4"):
        solve(padded(), "batch", "peak_bytes <= 100")
    with pytest.raises(ExpressionError, match=r"the formulas hold for no batch at .*: they need length >= 3"):
        solve(padded(), "batch", "bytes <= 100", length=2)


def test_a_total_known_in_part_is_said_to_be() -> None:
    partly = replace(padded(), totals={"product_flops": parse("batch"), "io_bytes": parse("batch")})
    with pytest.raises(ExpressionError, match=r"flops is known in part only: not aten.topk.*; there is product_flops"):
        solve(partly, "batch", "flops <= 100")


@pytest.mark.parametrize("limit", [0, -1, math.nan])
def test_a_time_limit_is_a_positive_number(limit: float) -> None:
    with pytest.raises(WorkloadError, match="must be a positive number of seconds"):
        symbolic(layer, over=["batch"], limit=limit)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch=8:1", "has no values"),
        ("batch=0:8:*2", "has no values"),
        ("batch=1,-3", "-3 is not"),
        ("batch=1:9000000", "at most 1,000,000 points"),
    ],
)
def test_an_axis_without_values_is_refused(text: str, said: str) -> None:
    with pytest.raises(ExpressionError, match=said):
        axis(text)


def test_a_goal_is_read_before_formulas_are_derived() -> None:
    check_target("flops/bytes >= 20*batch", ["batch"])
    with pytest.raises(ExpressionError, match="'peak_bites' is no total and no symbol: did you mean peak_bytes"):
        check_target("peak_bites <= 24GiB", ["batch"])
    with pytest.raises(ExpressionError, match="cannot read"):
        check_target("batch >", ["batch"])


def test_long_work_says_now_and_then_what_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with console.progress(quiet=False) as say:
        say("nothing yet")
    monkeypatch.setattr(console, "LINE_S", 0.0)
    with console.progress(quiet=False) as say:
        say("capturing")
    with console.progress(quiet=True) as say:
        say("never")
    assert capsys.readouterr().err == "0 s: capturing\n"


def test_what_long_work_has_said_last_is_printed_while_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "LINE_S", 0.2)
    with console.progress(quiet=False) as say:
        say("preparing")
        say("compiling")
        deadline = time.monotonic() + 60
        while not (said := capsys.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert said in ("0 s: compiling\n", "1 s: compiling\n")
