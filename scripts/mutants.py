"""Plant one fault at a time in the sources, and see that a fast test of the room finds it.

    python -m scripts.mutants                 # all
    python -m scripts.mutants cost memory     # of some rooms

The faults are planted in a copy of the last commit. Whoever makes tests cheaper runs this before and after.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Mutant(NamedTuple):
    """A wrong line: in ``path`` of the package, which tests are to find it, what stands there and what is put there."""

    path: str
    tests: str
    right: str
    wrong: str


MUTANTS = {
    "timelines": Mutant(
        "timelines/effects.py", "timelines", "peak = max(peak, net + part.peak)", "peak = max(peak, part.peak)"
    ),
    "cost": Mutant("cost/rules/products.py", "cost", "        return m * n * k\n", "        return m * n * (k - 1)\n"),
    "expr": Mutant("expr/atoms.py", "expr", "value=operator.floordiv", "value=lambda top, bottom: -(-top // bottom)"),
    "memory": Mutant(
        "memory/rounding.py",
        "memory",
        "return -(-nbytes // self.block) * self.block",
        "return nbytes // self.block * self.block",
    ),
    "parallelism": Mutant(
        "parallelism/local.py",
        "parallelism",
        "return -(-size // self.ranks) if axis in self.chosen",
        "return size // self.ranks if axis in self.chosen",
    ),
    "importers": Mutant(
        "importers/onnx/rules/products.py",
        "importers/onnx",
        'k = op.inputs[0].shape[0 if op.arg("transA", 0) else 1]',
        'k = op.inputs[0].shape[1 if op.arg("transA", 0) else 0]',
    ),
    "measures": Mutant("measures/checks/verdicts.py", "measures", '"<=": operator.le', '"<=": operator.lt'),
    "plans": Mutant(
        "plans/order/proof.py",
        "plans",
        "return min(before, _bound(stated, proof.after))",
        "return max(before, _bound(stated, proof.after))",
    ),
    "timing": Mutant(
        "timing/collectives/constants.py",
        "timing",
        "latency = self.base_ns + self.rank_ns * (ranks - 1)",
        "latency = self.base_ns + self.rank_ns * ranks",
    ),
    "top": Mutant("units.py", "reports", "_scale(count, 1024, len(_BINARY))", "_scale(count, 1000, len(_BINARY))"),
}
"""Mutants by room."""


def found_by(mutant: Mutant, tree: Path) -> str | None:
    """The first fast test that fails with ``mutant`` planted in ``tree``. Raises RuntimeError if it has no place."""
    path = tree / "src/tensortide" / mutant.path
    plain = path.read_text("utf-8")
    if plain.count(mutant.right) != 1:
        raise RuntimeError(f"{mutant.path} has {plain.count(mutant.right)} places for {mutant.right.strip()!r}, not 1")
    path.write_text(plain.replace(mutant.right, mutant.wrong), "utf-8")
    command = [sys.executable, "-m", "pytest", "-qx", "--no-header", "-p", "no:cacheprovider", f"tests/{mutant.tests}"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    finally:
        path.write_text(plain, "utf-8")
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].partition(" ")[2].partition(" - ")[0] if done.returncode else None


def main() -> int:
    """Try the mutants of the rooms that are named, or all; 1 if one was not found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"one of {', '.join(MUTANTS)} (default: all)")
    rooms, survived = parser.parse_args().rooms or [*MUTANTS], 0
    if unknown := sorted({*rooms} - {*MUTANTS}):
        parser.error(f"there is no mutant of {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, "HEAD"], cwd=ROOT, check=True)
        try:
            for room in rooms:
                test = found_by(MUTANTS[room], tree)
                survived += test is None
                print(f"{room:12} {'NOT FOUND' if test is None else 'found by ' + test}", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    return bool(survived)


if __name__ == "__main__":
    raise SystemExit(main())
