"""Numbers of parameters as formulas: those of the models of the reference, sizes that it fixes being free."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

import pytest

from tensortide import symbolic
from tensortide.examples import find
from tensortide.expr import Expr, constant, parse, symbol

NAMES = {"h": "hidden", "v": "vocab", "b": "batch", "c": "width", "n": "classes"}

SPEECH = {"A": "features", "e": "hidden", "g": "query", "r": "decoder", "d": "keys", "F": "filters", "K": "kernel"}

BERT = {"H": "hidden", "I": "intermediate", "L": "layers"}

SHORT: dict[str, dict[str, int]] = {
    "word_lm": {"seq": 2},
    "char_lm": {"seq": 2},
    "nmt": {"source_seq": 2, "target_seq": 2},
    "speech": {"seq": 5, "target_seq": 2},
    "bert": {"seq": 6, "positions": 12, "vocab": 30},
    "resnet18": {"classes": 7},
}
"""Loops that parameters do not depend on, as short as they can be, and sizes that are no symbols."""


PUBLISHED = [
    ("word2vec", "2*h*v + v"),
    ("word_lm", "16*h**2 + 2*h*v + 8*h + v"),
    ("char_lm", "22*h**2 + 2*h*v + 20*h + v"),
    ("nmt", "33*h**2 + 3*h*v + 12*h"),
    ("resnet18", "2724*c**2 + 49*c*i + 8*c*7 + 150*c + 7"),
]


def parameters(name: str, over: Sequence[str]) -> Expr:
    """What is found for a step without training: its parameters are the same."""
    short = {**SHORT.get(name, {}), "batch": 2, "train": False}
    return symbolic(find(name).load(), over=over, hyperparameters=short).total("parameters")


def expected(formula: str, names: Mapping[str, str]) -> Expr:
    replaced = {short: symbol(name) for short, name in names.items()}
    return parse(formula).subs(replaced | {"i": constant(3)})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "formula"), PUBLISHED)
def test_as_published(name: str, formula: str) -> None:
    truth = expected(formula, NAMES)
    over = [
        hyperparameter for hyperparameter in ("hidden", "width", "vocab", "classes") if hyperparameter in str(truth)
    ]
    assert parameters(name, over) == truth


@pytest.mark.parametrize(("name", "formula"), [PUBLISHED[0], pytest.param(*PUBLISHED[1], marks=pytest.mark.slow)])
def test_one_symbol_of_a_published_formula(name: str, formula: str) -> None:
    found = parameters(name, ["vocab"])
    hidden = inspect.signature(find(name).load()).parameters["hidden"].default
    assert found == expected(formula, NAMES).subs({"hidden": constant(hidden)})


@pytest.mark.slow
def test_speech() -> None:
    e, r = "48*e**2 + 8*e*(A + e) + 24*e + 2*e*d + d + K*F + F*d + 2*g*d + 2*d", "4*r*(g + r + 2*e) + 4*r + r*v + v"
    truth = expected(f"{e} + 4*g*(g + 2*e + v) + 4*g + {r}", SPEECH | {"v": "vocab"})
    assert parameters("speech", [*SPEECH.values(), "vocab"]) == truth


@pytest.mark.slow
def test_bert() -> None:
    """The encoder with its pooler: the reference also holds the heads of pre-training, a transform and its norm, the
    output's bias and the next sentence."""
    whole = "(4*L + 2)*H**2 + 2*L*H*I + H*12 + H*30 + (9*L + 10)*H + L*I + 30 + 2"  # 12 positions, 30 words
    heads = "H**2 + H + 2*H + 30 + 2*H + 2"
    assert parameters("bert", [*BERT.values()]) == expected(f"{whole} - ({heads})", BERT)
