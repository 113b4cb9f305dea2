"""Orders of published TensorFlow 1 graphs: bounds, the order of the file, greedy, ours, and Catamount's figures.

    python benchmarks/order_study.py [--write] [GRAPH ...]

Graphs are Catamount's, from the reference data. Every order is replayed, and every proof but an exhausted search is
checked again from the graph. Bytes; seconds of CPU time of the search, one core.

Savers and initializers are left out, of ResNet-18 also the inference tower; control edges are ignored, and nothing
else is removed. *L1*: persistent, and the largest op's own inputs and outputs. *L2*: persistent, and the largest
unavoidable set. *Lower*: the best bound, proved. *File order*: the order of the file, questions about shapes first.
*Greedy*: least growth first, ties by number. *Upper*: the best order. Where loops stay together the columns are about
the orders that keep them so.

The study keeps only variables resident throughout. Persistent, L1 and greedy agree with it to the byte for both
graphs, so ops and storages are the same; its definition order is another one than the file's (it is not said which),
hence another peak. Catamount's own value is of another kind: one pass over an arbitrary order, which loses track of
what passes through ops without a footprint; for BERT it lies below what every order needs. tensortide also keeps what
is fed and constants resident throughout (ResNet-18: two images of 4,816,896 bytes, two batches of labels of 128,
constants of 696; BERT: three inputs of 512, constants of 2,864), and what the step gives until its end (BERT: the
results of all layers).

Every op of a loop's iterations may move where the loops are written out: for the word LM that problem is proved with
three times the default work (``footprint(graph, work_limit=...)``). Loops together are a smaller choice of orders.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import harness
import msgspec

from tensortide import footprint
from tensortide.graph import Graph, Role, Storage
from tensortide.importers.tf1.load import import_graph
from tensortide.plans.order.cuts import unavoidable
from tensortide.plans.order.problem import Problem, stated
from tensortide.plans.order.proof import Exhausted, verify
from tensortide.replays import replay


class Case(NamedTuple):
    """A graph: which of its ops, at which sizes."""

    name: str
    preset: str
    sizes: dict[str, int]


CASES = [
    Case("resnet18", "resnet", {"b": 32, "c": 64, "n": 1000, "H": 224, "W": 224}),
    Case("bert_cased_L12", "none", {"s": 128}),
    Case("word2vec", "word2vec", {"b": 1, "s": 32, "h": 400, "v": 40004}),
    Case("word_lm", "word_lm", {"b": 32, "s": 32, "h": 2004, "v": 10004}),
    Case("word_lm", "word_lm", {"b": 64, "s": 80, "h": 2004, "v": 10004}),
]
STUDY = """\
| graph | persistent | L1 | definition order | 20 random orders | greedy | Catamount's value |
|---|---:|---:|---:|---|---:|---|
| resnet18 | 93,554,556 | 401,836,924 | 761,338,056 | 761,340,128 - 767,559,856 | 761,331,920 | \
758,349,024 - 758,349,036 |
| bert_cased_L12 | 435,731,736 | 440,450,328 | 441,566,380 | 441,566,400 | 441,566,400 | 436,129,332 - 436,259,876 |
"""
"""The same graphs measured with Catamount's own reader."""


def as_studied(graph: Graph) -> Graph:
    """``graph`` with only variables persistent: what is fed, constants and results live from first to last use."""
    ops = (graph[touching[0]].name if touching else "" for touching in graph.index.users)
    storages = [
        _local(storage, touching) if touching and "Var" not in first else storage
        for storage, touching, first in zip(graph.storages, graph.index.users, ops, strict=True)
    ]
    return msgspec.structs.replace(graph, storages=tuple(storages))


def _local(storage: Storage, touching: list[int]) -> Storage:
    return msgspec.structs.replace(storage, role=Role.TEMPORARY, birth=touching[0], death=touching[-1] + 1)


def greedy(asked: Problem) -> list[int]:
    """Always the ready op that lets the resident bytes grow least; of equals, the first."""
    waiting = [len(needed) for needed in asked.before]
    left = [len(touching) for touching in asked.users]
    ready = {op for op, count in enumerate(waiting) if not count}
    order: list[int] = []
    while ready:
        op = min(ready, key=lambda v: (asked.born[v] - sum(asked.nbytes[b] for b in asked.uses[v] if left[b] == 1), v))
        ready.remove(op)
        order.append(op)
        for block in asked.uses[op]:
            left[block] -= 1
        for later in asked.after[op]:
            waiting[later] -= 1
            if not waiting[later]:
                ready.add(later)
    return order


COLUMNS = {
    "graph": "{graph}",
    "ops": "{ops}",
    "persistent": "{persistent:,}",
    "L1": "{own:,}",
    "L2": "{sure:,}",
    "lower": "{lower:,}",
    "file order": "{file:,}",
    "greedy": "{greedy:,}",
    "upper": "{upper:,}",
    "gap %": "{gap:.3f}",
    "lower by": "{certificate}",
    "s": "{seconds:.2f}",
}
LOOPS = {"none": "", "written out": ", loops written out", "together": ", loops together"}


def bounds(name: str, graph: Graph) -> harness.Row:
    start = time.process_time()
    found = footprint(graph, work_limit=200_000_000, time_limit_s=600)
    seconds = time.process_time() - start
    assert replay(graph, found.plan).peak_bytes == found.upper_bytes
    if not isinstance(found.proof, Exhausted):
        assert verify(graph, found.proof, device=found.device) == found.lower_bytes
    asked = stated(graph, found.device)
    problem, nbytes = asked.problem, [int(storage.nbytes) for storage in asked.graph.storages]
    ops = range(len(problem))
    own = [problem.needs[v] - problem.born[v] + sum(problem.nbytes[b] for b in problem.uses[v]) for v in ops]
    sure = [sum(nbytes[s] for s in unavoidable(problem, v)) + problem.needs[v] - problem.born[v] for v in ops]
    return {
        "graph": name,
        "ops": f"{len(asked.ops):,}{LOOPS[found.loops]}",
        "persistent": found.persistent_bytes,
        "own": problem.base + max(own),
        "sure": max(sure),
        "lower": found.lower_bytes,
        "file": found.captured_peak_bytes,
        "greedy": asked.ops.peak(asked.spelled(greedy(problem))),
        "upper": found.upper_bytes,
        "gap": 100 * found.gap_bytes / found.lower_bytes,
        "certificate": found.certificate,
        "seconds": seconds,
    }


def measure(run: harness.Run) -> None:
    graphs = {}
    chosen = [case for case in CASES if not run.options.names or case.name in run.options.names]
    for case in [Case("word_lm", "word_lm", {"b": 1, "s": 2, "h": 8, "v": 16})] if run.smallest else chosen:
        file = harness.reference() / "catamount" / "graphs" / f"{case.name}.meta.gz"
        graph = import_graph(file, preparation="catamount", preset=case.preset, settings=case.sizes).graph
        graphs[harness.named(case.name, case.sizes)] = graph
    table = run.table(COLUMNS, ("graph",), "As the study counts")
    for name, graph in graphs.items():
        if name.startswith(("resnet18", "bert")):
            table.add(bounds(name, as_studied(graph)))
    table = run.table(COLUMNS, ("graph",), "As tensortide counts")
    for name, graph in graphs.items():
        table.add(bounds(name, graph))


if __name__ == "__main__":
    harness.main(__doc__, measure)
