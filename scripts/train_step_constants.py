"""Fit the closed form's constants of steps on many devices that ship with the package, and the pools of its intervals.

    python scripts/train_step_constants.py

writes ``src/tensortide/parallelism/closed/shipped.json``; every run gives the same file. The table is vTrain's measured
steps (VIA-Research/vTrain at f8dda847, MIT): A100-SXM-80GB, on one node and on several. Residuals are of steps held
out: with all that have the same layer, which then count as one together; on one node also one by one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import numpy as np

from tensortide.parallelism.closed.constants import Shipped
from tensortide.timing.intervals import pool
from tensortide.write import write_file

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from scripts.training.step_fits import accuracy, fit_steps, fitted, held_out  # noqa: E402
from tests.parallelism.tables import measured_of, vtrain  # noqa: E402

SHIPPED = ROOT / "src/tensortide/parallelism/closed/shipped.json"


def main() -> None:
    """Fit, hold out, and write."""
    cases = [*vtrain("multi"), *vtrain("single")]
    steps = measured_of(cases)
    several = np.array([case.step.nodes.count > 1 for case in cases])
    _, number, count = np.unique(steps.layers, return_inverse=True, return_counts=True)
    pools = {}
    for layers, parts in ((True, {"node": ~several, "nodes": several}), (False, {"known": ~several})):
        found = held_out(steps, fitted, layers=layers)
        residuals = np.log(steps.ns / found)
        weights = 1 / count[number] if layers else np.ones(len(steps))
        for name, part in parts.items():
            pools[name] = pool(residuals[part], found[part], weights=weights[part])
            print(name, accuracy(found[part], steps.ns[part]), pools[name].all)
    fit = fit_steps(steps)
    factors = {name: round(factor, 4) for name, factor in fit.factors.items()}
    told = f"{len(cases)} steps on 1 to 64 nodes of 8 A100-SXM-80GB (vTrain, MIT), with {len(count)} layers"
    write_file(SHIPPED, msgspec.json.format(msgspec.json.encode(Shipped(fit.constants, factors, pools, told))) + b"\n")
    print(fit.constants)


if __name__ == "__main__":
    main()
