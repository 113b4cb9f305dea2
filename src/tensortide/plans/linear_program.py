"""Linear programs solved by SciPy's HiGHS within a limit of a search."""

from __future__ import annotations

import math
from typing import Any

from tensortide.search_limit import Look, SearchLimit, attended, no_look


def solved(cost: Any, *, limit: SearchLimit, iteration: float, look: Look = no_look, **program: Any) -> Any | None:
    """The optimum of a linear program, of the arguments and the results of ``scipy.optimize.linprog``; None if it is
    not found within ``limit``, of which an iteration spends ``iteration``. ``look`` is called meanwhile; it may raise.

    Raises ImportError where SciPy is not installed.
    """
    from scipy import optimize

    solve: Any = optimize.linprog
    options: dict[str, Any] = {"time_limit": max(0.01, limit.seconds_left)}
    if limit.work_left != math.inf:
        options["maxiter"] = int(limit.work_left / iteration)
        if not options["maxiter"]:
            return None
    found: Any = attended(lambda: solve(cost, method="highs", options=options, **program), look)
    limit.spend(found.nit * iteration)
    return found if found.status == 0 else None
