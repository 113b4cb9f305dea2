"""CPU seconds of formulas.

    python benchmarks/formula_time.py [--write] [QUESTION ...]

Three kinds of question: the whole analysis of TensorFlow graphs (import, all totals as formulas, a sweep of 76 points)
against the seconds that Catamount (2019) took on its own machine for import, one point and a short sweep; ``bert``: all
totals of a large step evaluated at one binding; ``gpt2``: formulas of GPT-2 small against one capture of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import harness

import tensortide
from tensortide.expr import compiled, expr_of

CATAMOUNT_S = {"word_lm": 19, "word2vec": 44, "bert_cased_L12": 86, "resnet18": 92}
"""CPU seconds of the original, as its measurements were published with the graphs."""
COLUMNS = {"what": "{what}", "CPU s": "{seconds:.6f}", "ratio": "{ratio:.1f}", "to": "{to}"}


def cpu(work: Callable[[], object], rounds: int = 3) -> float:
    return min(harness.paired(rounds, work)[0])


def gpt2() -> Iterator[harness.Row]:
    over = ["batch", "seq", "hidden", "vocab", "layers"]
    tensortide.capture("gpt2", hyperparameters={"layers": 1})
    once = cpu(lambda: tensortide.capture("gpt2"))
    found = tensortide.symbolic("gpt2", over=over)
    spent = cpu(lambda: tensortide.symbolic("gpt2", over=over))
    yield {"what": "one capture of GPT-2 small", "seconds": once}
    what = f"its formulas in {', '.join(over)} ({found.captures} captures, one of them the model itself)"
    yield {"what": what, "seconds": spent, "ratio": spent / once, "to": "one capture"}


def bert() -> Iterator[harness.Row]:
    found = tensortide.symbolic("bert", over=["batch", "seq", "layers"])
    ops, points = len(tensortide.capture("bert")), range(2, 1002)
    found.evaluate()
    spent = cpu(lambda: [found.evaluate(batch=n) for n in points]) / len(points)
    yield {"what": f"{len(found.formulas.totals)} totals of BERT base ({ops:,} ops) at one binding", "seconds": spent}


def metagraph(name: str) -> Iterator[harness.Row]:
    """Import, five totals as formulas, and 76 points."""
    from tensortide.importers.tf1.load import import_graph

    def analysis() -> None:
        imported = import_graph(harness.reference() / "catamount" / "graphs" / f"{name}.meta.gz")
        count = tensortide.count(imported.graph)
        figures = [count.total.macs, count.total.flops, count.total.accessed_bytes, count.sizes.trainable]
        function = compiled(expr_of(figure) for figure in [*figures, count.sizes.io_bytes])
        symbol = next(iter(function.symbols))
        for value in range(1, 77):
            function({**imported.symbols, symbol: 8 * value})

    analysis()
    spent, theirs = cpu(analysis), CATAMOUNT_S[name]
    what = f"{name}.meta: import, 5 totals, 76 points"
    yield {"what": what, "seconds": spent, "ratio": theirs / spent, "to": f"{theirs} s of Catamount"}


QUESTIONS = {**{name: functools.partial(metagraph, name) for name in CATAMOUNT_S}, "bert": bert, "gpt2": gpt2}


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, ("what",))
    for question in run.cases(QUESTIONS).values():
        for row in question():
            table.add(row)


if __name__ == "__main__":
    harness.main(__doc__, measure)
