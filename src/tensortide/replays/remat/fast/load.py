"""The compiled engine, loaded: from the cache if these very sources were compiled before."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensortide.plans.remat.policies import Work
from tensortide.plans.remat.recording import Event
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.plans.remat.schedule import Schedule
    from tensortide.replays.remat.fast.state import Prepared, Step, World


@functools.cache
def kernel() -> Callable[[Step, World], int]:
    """``kernel.play``, compiled when it is first called, which takes some 20 s, once for each version of the sources.

    Numba's own cache looks at one file only; so the machine code lies in a folder named after all of them, and after
    the values of the enumerations that they share with the plain engine.
    """
    import numba

    folder = Path(__file__).parent
    sources = hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(folder.glob("*.py"))))
    sources.update(repr([list(shared) for shared in (Event, Kind, Work)]).encode())
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_home() / f"kernels-{sources.hexdigest()[:16]}")
    try:
        from tensortide.replays.remat.fast import neighbours  # noqa: F401 (to be cached there as well)
        from tensortide.replays.remat.fast.kernel import play
    finally:
        config.CACHE_DIR = before
    return play


def prepared(schedule: Schedule) -> Prepared:
    """Prepare the data that runs of ``schedule`` share."""
    kernel()
    from tensortide.replays.remat.fast.neighbours import neighbours, ops_of, rings
    from tensortide.replays.remat.fast.state import Prepared

    made = ops_of(schedule.output_ends)
    following = rings(schedule.storage, len(schedule.root))
    added, near = neighbours(schedule.inputs, schedule.input_ends, schedule.storage, schedule.root, made, following)
    return Prepared(schedule, made, added, following, near)


def _home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tensortide"
