"""Formulas made by hand: those of the reference's word language model, and of a transformer."""

from __future__ import annotations

from tensortide.expr import parse, parse_condition, symbol
from tensortide.formulas import Formulas


def made(totals: dict[str, str], defaults: dict[str, int], *region: str, workload: str = "") -> Formulas:
    return Formulas(
        totals={name: parse(text) for name, text in totals.items()},
        defaults=defaults,
        region=tuple(map(parse_condition, region)),
        workload=workload,
    )


def word_lm() -> Formulas:
    """An LSTM language model as the reference counts it: T trips of two forward and two gradient loops."""
    forward, backward = "(16*h**2*b + 33*h*b + 6)", "(32*h**2*b + 8*h**2 + 37*h*b + 4*h + 3)"
    totals = {
        "parameters": "16*h**2 + 2*h*v + 8*h + v + 2",
        "flops": f"2*T*{backward} + 2*T*{forward} + 48*h**2 + 6*h*s*b*v + 4*h*s*b + 3*h*v + 24*h + 7*s*b*v + 4*s*b "
        "+ 3*v + 53",
        "bytes": "2*T*(160*h**2 + 424*h*b + 64*h + 295) + 2*T*(32*h**2 + 200*h*b + 16*h + 155) + 448*h**2 + 180*h*s*b "
        "+ 56*h*b + 36*h*v + 224*h + 60*s*b*v + 177*s*b + 16*s + 40*v + 2788",
        "footprint_bytes": "2*T*(64*h**2 + 156*h*b + 32*h + 58) + 2*T*(96*h*b + 96) + 192*h**2 + 80*h*s*b + 56*h*b "
        "+ 16*h*v + 96*h + 28*s*b*v + 80*s*b + 16*s + 16*v + 1480",
        "io_bytes": "32*h*b + 8*s*b",
    }
    with_loops = made(totals, {"h": 2004, "v": 10004, "s": 80, "b": 64, "T": 80}, workload="word_lm")
    return with_loops.along({"T": symbol("s")})


def transformer() -> Formulas:
    weights = "(layers*(12*hidden**2 + 13*hidden) + hidden*(vocab + positions) + 2*hidden)"
    tokens = "batch*seq"
    totals = {
        "parameters": weights,
        "flops": f"72*layers*{tokens}*hidden**2 + 12*layers*{tokens}*seq*hidden + 6*{tokens}*hidden*vocab "
        f"+ 20*{weights}",
        "bytes": f"36*{weights} + 480*layers*{tokens}*hidden + 40*layers*{tokens}*seq*heads + 24*{tokens}*vocab",
        "peak_bytes": f"16*{weights} + max(68*layers*{tokens}*hidden + 8*{tokens}*vocab, "
        f"34*layers*{tokens}*hidden + 10*layers*{tokens}*seq*heads + 12*{tokens}*vocab)",
    }
    defaults = {"batch": 8, "seq": 1024, "hidden": 768, "layers": 12, "heads": 12, "vocab": 50257, "positions": 1024}
    return made(totals, defaults, "hidden % heads == 0", "seq <= positions", workload="gpt2")
