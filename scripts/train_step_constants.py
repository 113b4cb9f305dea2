"""Fit the closed form's constants of steps on many devices that ship with the package, and the pools of its intervals.

    python scripts/train_step_constants.py

writes ``src/tensortide/parallelism/closed/shipped.json``; every run gives the same file. The table is vTrain's measured
steps (VIA-Research/vTrain at f8dda847, MIT): A100-SXM-80GB, on one node and on several. Residuals are of steps held
out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import numpy as np

from tensortide.parallelism.closed.constants import Shipped
from tensortide.parallelism.closed.fitting import accuracy, fit_constants, fitted, held_out
from tensortide.timing.intervals import pool
from tensortide.write import write_file

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from tests.parallelism.tables import measured_of, vtrain  # noqa: E402

SHIPPED = ROOT / "src/tensortide/parallelism/closed/shipped.json"


def main() -> None:
    """Fit, hold out, and write."""
    cases = [*vtrain("multi"), *vtrain("single")]
    known = measured_of(cases)
    found = held_out(known, fitted)
    residuals = np.log(known.ns / found)
    several = np.array([case.step.cluster.nodes > 1 for case in cases])
    pools = {"node": pool(residuals[~several], found[~several]), "nodes": pool(residuals[several], found[several])}
    for name, part in (("node", ~several), ("nodes", several)):
        print(name, accuracy(found[part], known.ns[part]), pools[name].all)
    made = Shipped(fit_constants(known), pools, f"{len(cases)} steps on 1 to 64 nodes of 8 A100-SXM-80GB (vTrain, MIT)")
    write_file(SHIPPED, msgspec.json.format(msgspec.json.encode(made)) + b"\n")
    print(made.constants)


if __name__ == "__main__":
    main()
