"""Compilation is done before the time limit of a plan begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide.compiled import IS_COMPILED
from tests.forked_script import forked

COLD = """
import sys
from fractions import Fraction
from numba.core.registry import CPUDispatcher
from tensortide import plan
from tensortide.studies.planning.warm import warm_up
from tensortide.studies.remat.linear import linear_network
from tensortide.timing.links import Link

def compiled():
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("tensortide.")]
    return {f.__qualname__ for module in modules for f in vars(module).values()
            if isinstance(f, CPUDispatcher) and f.signatures}

links = (Link("host", Fraction(10**9), 10),) * MOVES
warm_up(moves=bool(links))
known = compiled()
for layers, budget in ((40, 9), (12, 5)):
    plan(linear_network(layers), budget, effort=0.05, links=links)
print(sorted(compiled() - known))
"""


@pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled without Numba")
@pytest.mark.slow
@pytest.mark.parametrize("moves", [0, 1])
def test_a_plan_compiles_nothing_once_it_is_warm(moves: int, tmp_path: Path) -> None:
    cold = tmp_path / "cold.py"
    cold.write_text(COLD.replace("MOVES", str(moves)))
    done = forked(cold)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
