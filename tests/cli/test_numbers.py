"""Fractional numbers: none is infinite or no number at all, whatever the verb."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from scripts.option_tables import every_command, own_options, requests
from tensortide.cli import main
from tensortide.errors import RequestError
from tensortide.request import Option, Request, made, options

GIVEN: dict[str, Any] = {"domain": "nmt", "targets": ("mlp",)}
"""Options that must be given, and take neither any text nor a number."""


def fractions() -> list[tuple[type[Request], Option]]:
    """Every option of every verb that is a number with a fraction, with its request."""
    kinds = {kind for _, command in every_command() for kind in requests(command)}
    found = [(kind, one) for kind in kinds for one in own_options(kind) if float in one.kinds]
    return sorted(found, key=lambda each: (each[0].__qualname__, each[1].name))


def test_every_fractional_option_is_checked() -> None:
    found = fractions()
    assert len(found) >= 20
    for kind, one in found:
        must: dict[str, Any] = {
            each.field.name: GIVEN.get(each.field.name, "mlp" if str in each.kinds else 1)
            for each in options(kind)
            if each.default is dataclasses.MISSING
        }
        for number in (math.nan, -math.inf, *([] if one.opt.infinite else [math.inf])):
            with pytest.raises(RequestError, match=rf"^{one.name} takes .*number.*, not {number}$"):
                made(kind, {**must, one.field.name: (number,) if one.is_tuple else number})


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "0.0", "-1.0"])
def test_a_price_is_a_positive_number(capsys: pytest.CaptureFixture[str], number: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["scale", "--model", "layers=2,hidden=64,heads=2", "--batch", "8", f"--price={number}"])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (2, "")
    assert shown.err == f"error: --price takes a finite number above 0, not {number.removesuffix('.0')}\n"


@pytest.mark.parametrize("number", ["nan", "-inf", "0.5"])
def test_a_limit_is_at_least_one(capsys: pytest.CaptureFixture[str], number: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["remat", "simulate", "mlp", "--budget", "1MiB", f"--limit={number}"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"error: --limit takes a number from 1, not {number}\n"
