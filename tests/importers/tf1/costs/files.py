"""The published graphs and numbers of Catamount, and how its names map to ours."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

from tensortide.cost.table import Table
from tensortide.expr import Expr, as_expr, parse
from tensortide.importers.imported import Imported
from tensortide.importers.tf1.catamount import NOT_PARAMETERS, tabulate
from tensortide.importers.tf1.load import import_graph


class Case(NamedTuple):
    """A graph with published formulas: its preset, sizes that it needs names for, and our names of their symbols."""

    preset: str
    bind: dict[str, tuple[int | str, ...]]
    names: dict[str, str]


BERT = {
    r"Placeholder(_\d)?": ("b", "s"),
    r"bert/embeddings/Reshape(_2)?/shape|bert/encoder/Reshape_([2-9]|1[0-3])/shape": ("b", "s", "d*a"),
    r"bert/embeddings/Reshape_3/shape": (1, "s", "d*a"),
    r"bert/embeddings/Slice/size": ("s", -1),
    r"bert/encoder/Reshape/shape": ("b", 1, "s"),
    r"bert/encoder/layer_\d+/attention/self/Reshape(_1|_2)?/shape": ("b", "s", "a", "d"),
    r"bert/encoder/layer_\d+/attention/self/Reshape_3/shape": ("b*s", "d*a"),
    r"bert/embeddings/position_embeddings": ("P", "d*a"),
    r"bert/encoder/layer_\d+/intermediate/dense/bias": ("I",),
}
"""This graph is stored for one batch of one size: where it says so."""

CASES = {
    "word_lm": Case(
        "word_lm",
        {"Input/Input": ("b", "s"), "Model/Embedding_1/EmbeddingWeights": ("v", "h"), "Model/Placeholder": ("b", "h")},
        {"T": "s"},
    ),
    "word2vec": Case(
        "word2vec",
        {".*LogUniformCandidateSampler": ("k",), "Model/Embedding_1/EmbeddingWeights": ("v", "h")},
        {"w": "8", "n": "8"},
    ),
    "dynamic_rnn_with_backprop": Case("none", {"a": ("b", "s", 24)}, {}),
    "resnet18": Case("resnet", {"input": ("b", "H", "W", 3), "linear/b": ("cls",)}, {"cin": "3"}),
    "bert_cased_L12": Case("none", BERT, {}),
}
NOTHING = Case("none", {}, {})
SMALL = {
    "simple_example": Case("none", {"a": ("b", 128)}, {}),
    "static_unroll": Case("none", {"a": (5, "b", 24)}, {}),
    "simple_while": Case("none", {"a": ("b", 1)}, {"T": "bound"}),
    "dynamic_rnn": Case("none", {"a": ("b", "s", 24)}, {"T": "s"}),
}
CASES |= SMALL


def renamed(expr: Expr, names: dict[str, str]) -> Expr:
    """``expr`` with symbols replaced by the expressions that ``names`` has for them."""
    return expr.subs({name: as_expr(text) for name, text in names.items()})


def graph_file(reference: Path, name: str) -> Path:
    return reference / "catamount" / "graphs" / f"{name}.meta.gz"


def formulas(reference: Path) -> Any:
    return json.loads((reference / "catamount" / "formulas.json").read_text())


@functools.cache
def prepared(reference: Path, name: str) -> Imported:
    """The graph as the ``catamount`` table wants it."""
    preset, bind, _ = CASES.get(name, NOTHING)
    return import_graph(graph_file(reference, name), preparation="catamount", preset=preset, bind=bind)


@functools.cache
def theirs(reference: Path, name: str) -> Table:
    """The ``catamount`` table of a graph."""
    imported = prepared(reference, name)
    preset = CASES.get(name, NOTHING).preset
    return tabulate(imported.graph, imported.symbols, skip_parameters=NOT_PARAMETERS.get(preset, ""))


@functools.cache
def step(reference: Path, name: str, **settings: int) -> Imported:
    """The training step of a graph, where symbols of its sizes have other values than the file's."""
    # The ResNet's step is fed by a queue, so it has no op "input".
    bind = {pattern: dims for pattern, dims in CASES.get(name, NOTHING).bind.items() if pattern != "input"}
    return import_graph(graph_file(reference, name), bind=bind, settings=settings)


def published(text: str, names: dict[str, str]) -> Expr:
    """One of their formulas in our symbols."""
    return renamed(parse(text), names)
