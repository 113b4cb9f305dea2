"""``python -m tests.recorder.corpus [NAME ...]``: how the capture of each workload goes."""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter

from tensortide import capture
from tensortide.errors import TensortideError
from tests.recorder.corpus import CORPUS
from tests.recorder.steps import Workload


def outcome(make: Workload) -> tuple[str, str]:
    """How the capture went (``fake``, ``real``, ``error``), and what it says."""
    try:
        graph = capture(make)
    except TensortideError as error:
        return "error", str(error).partition("\n")[0]
    return graph.meta.captured_on, "; ".join(graph.meta.assumptions)


def main(*names: str) -> None:
    counts = Counter[str]()
    for name in names or CORPUS:
        began = time.process_time()
        with warnings.catch_warnings(action="ignore"):
            how, said = outcome(CORPUS[name])
        counts[how] += 1
        sys.stdout.write(f"{how:5} {name:24} {time.process_time() - began:5.1f} s  {said}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{counts.total()} workloads: {dict(counts)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
