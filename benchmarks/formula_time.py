"""What formulas cost, in CPU seconds of one process.

    python benchmarks/formula_time.py [--write]

Three questions: formulas of GPT-2 small against one capture of it; the whole analysis of TensorFlow graphs (import, all
totals as formulas, a sweep of 76 points) against the seconds that Catamount (2019) took on another machine for import,
one point and a short sweep; evaluating all totals of a large step at one binding.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import tensortide
from tensortide.expr import compiled, expr_of

ROOT = Path(__file__).resolve().parents[2] / "shared" / "reference" / "catamount" / "graphs"
CATAMOUNT_S = {"word_lm": 19, "word2vec": 44, "bert_cased_L12": 86, "resnet18": 92}
"""CPU seconds of the original, as its measurements were published with the graphs."""


def cpu(work: Callable[[], object], repeat: int = 3) -> float:
    """The least CPU seconds of ``repeat`` runs."""
    spent = []
    for _ in range(repeat):
        before = time.process_time()
        work()
        spent.append(time.process_time() - before)
    return min(spent)


def gpt2() -> list[str]:
    over = ["batch", "seq", "hidden", "vocab", "layers"]
    tensortide.capture("gpt2", hyperparameters={"layers": 1})
    once = cpu(lambda: tensortide.capture("gpt2"))
    found = tensortide.symbolic("gpt2", over=over)
    formulas = cpu(lambda: tensortide.symbolic("gpt2", over=over))
    what = f"its formulas in {', '.join(over)} ({found.captures} captures, one of them the model itself)"
    return [
        f"| one capture of GPT-2 small | {once:.2f} s | |",
        f"| {what} | {formulas:.2f} s | {formulas / once:.1f}x |",
    ]


def evaluation() -> list[str]:
    found = tensortide.symbolic("bert", over=["batch", "seq", "layers"])
    ops = len(tensortide.capture("bert"))
    found.evaluate()
    spent = cpu(lambda: [found.evaluate(batch=n) for n in range(2, 1002)]) / 1000
    return [
        f"| {len(found.formulas.totals)} totals of BERT base ({ops:,} ops) at one binding | {spent * 1e6:.0f} us | |"
    ]


def metagraph(name: str) -> list[str]:
    """Import, five totals as formulas, and 76 points."""
    from tensortide.importers.tf1.load import import_graph

    def analysis() -> None:
        imported = import_graph(ROOT / f"{name}.meta.gz")
        count = tensortide.count(imported.graph)
        figures = [count.total.macs, count.total.flops, count.total.bytes, count.holdings.trainable]
        function = compiled(expr_of(figure) for figure in [*figures, count.holdings.io_bytes])
        symbol = next(iter(function.symbols))
        for value in range(1, 77):
            function({**imported.symbols, symbol: 8 * value})

    analysis()
    spent, theirs = cpu(analysis), CATAMOUNT_S[name]
    return [
        f"| {name}.meta: import, 5 totals, 76 points | {spent:.2f} s | {theirs / spent:.0f}x less than {theirs} s |"
    ]


def main() -> None:
    lines = ["| what | CPU | ratio |", "|---|---:|---|", *gpt2(), *evaluation()]
    for name in CATAMOUNT_S if ROOT.is_dir() else ():
        lines += metagraph(name)
    table = "\n".join(lines)
    print(table)
    if "--write" in sys.argv:
        head = f"# What formulas cost\n\n`python benchmarks/formula_time.py --write`. {platform.machine()}; Python "
        head += f"{platform.python_version()}. The last rows compare with Catamount's seconds on its own machine.\n\n"
        (Path(__file__).parent / "results" / "formula_time.md").write_text(f"{head}{table}\n")


if __name__ == "__main__":
    main()
