"""Memory that every placement of a captured step needs: what cannot fit is refused before a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tensortide.errors import NothingFits

if TYPE_CHECKING:
    from tensortide.placements.graphs.problem import GraphProblem


@dataclass(frozen=True, eq=False)
class Limit:
    """A necessary condition of memory: the resident bytes of units on each device ``unit_bytes`` [units, devices], and
    the room of each device for them ``room_bytes`` [devices]. ``beside`` names what else is on the devices."""

    unit_bytes: NDArray[np.float64]
    room_bytes: NDArray[np.float64]
    beside: str = ""


def check_limits(problem: GraphProblem) -> None:
    """Raise NothingFits if what is always resident cannot fit, wherever it is placed."""
    _check_units(problem)
    for limit in problem.limits:
        least, room = int(limit.unit_bytes.min(axis=1).sum()), limit.room_bytes.sum()
        if least > room:
            error = NothingFits(
                f"the step needs {least:,} bytes throughout, and all devices together have {int(room):,}{limit.beside}"
            )
            error.short_bytes = least - int(room)
            raise error


def _check_units(problem: GraphProblem) -> None:
    """Raise NothingFits for the first unit that does not fit on any device that it may be on."""
    step, device_bytes = problem.step, problem.simulator.device_bytes
    workspaces = step.libraries.of_units(len(problem.names))
    for unit, own_bytes in enumerate(map(int, problem.resident)):
        device = problem.pins.get(unit, int((device_bytes - workspaces[unit]).argmax()))
        library_bytes = int(workspaces[unit, device])
        nbytes = own_bytes + library_bytes
        if nbytes > device_bytes[device]:
            ops = step.units.ops(unit)
            listed = ", ".join(f"{op} ({step.graph[op].name})" for op in ops[:4]) + ", ..." * (len(ops) > 4)
            remark = f", {library_bytes:,} of them workspaces of libraries," if library_bytes else ","
            error = NothingFits(
                f"unit {problem.names[unit]!r} needs {nbytes:,} bytes throughout{remark} and "
                f"{step.cluster.devices[device].name} has {int(device_bytes[device]):,}; its {len(ops)} ops share a "
                f"device: {listed}"
            )
            error.short_bytes = nbytes - int(device_bytes[device])
            raise error
