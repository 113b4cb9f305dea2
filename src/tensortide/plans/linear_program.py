"""Linear programs solved by SciPy's HiGHS within a limit of a search."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from typing import Any

from tensortide.search_limit import Look, SearchLimit, attended, no_look

_SMALL = 100_000
"""Numbers of a program that takes about a second: less than it takes to start another process."""
_SOLVER = """
import os, pickle, sys, threading
from scipy.optimize import linprog
program = pickle.load(sys.stdin.buffer)
threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(1)), daemon=True).start()  # ends with its parent
sys.stdout.buffer.write(pickle.dumps(linprog(**program)))
sys.stdout.buffer.flush()
os._exit(0)
"""


def solved(cost: Any, *, limit: SearchLimit, iteration: float, look: Look = no_look, **program: Any) -> Any | None:
    """The optimum of a linear program, of the arguments and the results of ``scipy.optimize.linprog``; None if it is
    not found within ``limit``, of which an iteration spends ``iteration``. ``look`` is called meanwhile; it may raise.

    Raises ImportError where SciPy is not installed.
    """
    from scipy import optimize

    options: dict[str, Any] = {"time_limit": max(0.01, limit.seconds_left)}
    if limit.work_left != math.inf:
        options["maxiter"] = int(limit.work_left / iteration)
        if not options["maxiter"]:
            return None
    stated = {"c": cost, "method": "highs", "options": options, **program}
    numbers = sum(program[name].nnz for name in ("A_ub", "A_eq") if name in program)
    solve: Any = optimize.linprog
    found: Any = solve(**stated) if numbers <= _SMALL or not sys.executable else _apart(stated, look)
    limit.spend(found.nit * iteration)
    return found if found.status == 0 else None


def _apart(stated: dict[str, Any], look: Look) -> Any:
    """Solve a program in a process of its own: HiGHS hears nobody, and a thread that runs it cannot be ended."""
    command = [sys.executable, "-P", "-c", _SOLVER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        given, answer = process.stdin, process.stdout

        def ask() -> bytes:
            given.write(pickle.dumps(stated))
            given.flush()
            return answer.read()

        return pickle.loads(attended(ask, look, process.kill))
