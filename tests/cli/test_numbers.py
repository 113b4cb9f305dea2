"""Fractional numbers on the command line: none is infinite or no number at all, whatever the verb."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from cyclopts import App

from tensortide.cli import main
from tensortide.cli.app import VERBS, application
from tensortide.cli.numbers import Real

NAMES = [name for verbs in VERBS.values() for name in verbs]


def leaves(app: App, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    if app.default_command is not None:
        yield path, app
    for name in app:
        if not name.startswith("-"):
            yield from leaves(app[name], (*path, name))


def fractions() -> dict[tuple[tuple[str, ...], str], Any]:
    """Every option of every verb that is a float, with its checks."""
    found = {}
    for path, app in leaves(application(NAMES)):
        for argument in app.assemble_argument_collection():
            if argument.hint is float or float in get_args(argument.hint):
                found[path, argument.name] = argument.parameter.validator
    return found


def test_every_fractional_option_has_the_check() -> None:
    checks = fractions()
    verbs = {path for path, _ in checks}
    assert {("scale",), ("place",), ("remat", "sweep"), ("formulas", "project"), ("plan",)} <= verbs
    assert [key for key, check in checks.items() if not any(isinstance(one, Real) for one in check)] == []


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "0.0", "-1.0"])
def test_a_price_is_a_positive_number(capsys: pytest.CaptureFixture[str], number: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["scale", "--model", "layers=2,hidden=64,heads=2", "--batch", "8", f"--price={number}"])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (2, "")
    must = "> 0" if number[-1] == "0" else "a finite number"
    assert shown.err.splitlines()[0] == f'error: Invalid value "{number}" for --price. Must be {must}.'


@pytest.mark.parametrize("number", ["nan", "-inf", "0.5"])
def test_a_limit_is_at_least_one(capsys: pytest.CaptureFixture[str], number: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["remat", "simulate", "mlp", "--budget", "1MiB", f"--limit={number}"])
    must = ">= 1" if number == "0.5" else "a number"
    assert ended.value.code == 2
    assert f'Invalid value "{number}" for --limit. Must be {must}.' in capsys.readouterr().err
