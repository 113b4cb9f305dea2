"""Times that stay as they are: what every time model of the program is replaced by while figures are recorded.

Predicted times follow from ``inputs/times.json`` and the machines in ``inputs`` alone, so that a better model of time
moves no figure, while everything that is computed from times is compared.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType

import msgspec

import tensortide.parallelism.closed.constants as closed_constants
import tensortide.timelines.step as host_times
import tensortide.timing.collectives.constants as collective_constants
import tensortide.timing.collectives.hierarchy as hierarchy
import tensortide.timing.predict as op_times
from scripts.freeze.settings import INPUTS
from tensortide.timing.catalogue import Device
from tensortide.timing.estimates import Provenance
from tensortide.timing.families import VIEW
from tensortide.timing.prediction import Prediction, bound_of
from tensortide.timing.rates import columns
from tensortide.timing.work import Work


class Ops(msgspec.Struct, frozen=True):
    """An op takes ``launch_ns`` and ``factor`` times the longer of its arithmetic at peak and its bytes at full
    bandwidth; a view takes its host ``view_ns``. ``half_width`` is that of every interval."""

    launch_ns: int
    factor: int
    view_ns: int
    half_width: float

    def predict(self, works: Sequence[Work], device: Device) -> list[Prediction]:
        """In place of ``timing.predict.predict``."""
        table = columns(works, device)
        least = zip(works, table.compute_ns.tolist(), table.memory_ns.tolist(), strict=True)
        return [self._prediction(work, compute, memory) for work, compute, memory in least]

    def _prediction(self, work: Work, compute: float, memory: float) -> Prediction:
        half = self.half_width
        if work.family == VIEW:
            return Prediction(work, self.view_ns, half, half, Provenance.EXTRAPOLATED, "views", "views")
        known = work.known and compute == compute  # NaN: a dtype whose rate the machine does not have
        ns = float(self.launch_ns + self.factor * round(max(compute, memory) if known else memory))
        provenance = Provenance.INTERPOLATED if known else Provenance.UNKNOWN
        return Prediction(work, ns, half, half, provenance, "fixed", bound_of(compute, memory, ns))


class Host(msgspec.Struct, frozen=True):
    """Times of hosts, under the names that they have in ``timelines.step``."""

    ISSUE_NS: int
    CPU_OVERHEAD: float


class Times(msgspec.Struct, frozen=True):
    """All that takes the place of models and of constants that come with the package."""

    ops: Ops
    host: Host
    nic_share: float
    collectives: collective_constants.Shipped
    closed: closed_constants.Shipped


def read_times() -> Times:
    """The committed times."""
    return msgspec.json.decode((INPUTS / "times.json").read_bytes(), type=Times)


@contextlib.contextmanager
def fixed_times() -> Iterator[None]:
    """Predict with the committed times as long as the context lasts."""
    times = read_times()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_replaced(op_times, "predict", times.ops.predict))
        stack.enter_context(_replaced(collective_constants, "shipped", lambda: times.collectives))
        stack.enter_context(_replaced(closed_constants, "shipped", lambda: times.closed))
        stack.enter_context(_replaced(hierarchy, "NIC_SHARE", times.nic_share))
        for name in Host.__struct_fields__:
            stack.enter_context(_replaced(host_times, name, getattr(times.host, name)))
        yield


@contextlib.contextmanager
def _replaced(module: ModuleType, name: str, value: object) -> Iterator[None]:
    """Replace ``name`` of ``module``; a function also in every module that has imported it from there."""
    old = getattr(module, name)
    places = [module]
    if callable(old):
        loaded = [each for key, each in sys.modules.items() if key.startswith("tensortide.")]
        places = [each for each in loaded if vars(each).get(name) is old]
    for place in places:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place in places:
            setattr(place, name, old)
