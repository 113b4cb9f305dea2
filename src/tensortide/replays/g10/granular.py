"""G10-GDS and G10-Host: the moves of G10's planner as whole tensors; those that it forces are fetched on demand."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensortide.replays.g10.machine import GIB, PAGE, G10Machine, Trace
from tensortide.replays.g10.outcome import G10Outcome, Move, Tier, Traffic
from tensortide.replays.g10.overlap import overlap_ns
from tensortide.replays.g10.planner import Scheme, scheme
from tensortide.search_limit import Look, no_look

_BINARY = GIB / 10**9
"""Rates of the simulator are in units of 2**30 bytes."""
COMPAT_DEVICES = 4
"""Times its memory that the device has in the original's simulation."""


def g10_gds(trace: Trace, machine: G10Machine, *, compat: bool = False, look: Look = no_look) -> G10Outcome:
    """Play the moves that G10's planner finds over the drive alone; ``compat`` as for ``granular``."""
    planned = scheme(trace, machine, host=False, granular=True, look=look)
    return granular("g10-gds", trace, machine, planned, compat=compat)


def g10_host(trace: Trace, machine: G10Machine, *, compat: bool = False, look: Look = no_look) -> G10Outcome:
    """Play the moves that G10's planner finds over host and drive; ``compat`` as for ``granular``."""
    planned = scheme(trace, machine, granular=True, look=look)
    return granular("g10-host", trace, machine, planned, compat=compat)


def granular(policy: str, trace: Trace, machine: G10Machine, planned: Scheme, *, compat: bool = False) -> G10Outcome:
    """Play ``planned`` from a state in which what lasts is resident.

    ``compat`` plays it as the original does: the device has four times its memory, and a tensor that lasts is never
    fetched on demand. Without it kernels wait for room, and the step ends if nothing that leaves makes any.
    """
    return _Player(policy, trace, machine, compat).play(planned)


@dataclass
class _Player:
    policy: str
    trace: Trace
    machine: G10Machine
    compat: bool
    now: float = 0.0
    free: dict[tuple[Tier, bool], float] = field(default_factory=dict)
    moved: dict[tuple[Tier, bool], int] = field(default_factory=dict)
    left: dict[int, float] = field(default_factory=dict)
    """When each tensor that is away has left, and where it is in ``place``."""
    place: dict[int, Tier] = field(default_factory=dict)
    arrives: dict[int, float] = field(default_factory=dict)
    busy: list[tuple[float, float]] = field(default_factory=list)
    runs: list[tuple[float, float]] = field(default_factory=list)
    held: int = 0
    leaving: list[tuple[float, int]] = field(default_factory=list)

    def play(self, planned: Scheme) -> G10Outcome:
        trace = self.trace
        out: dict[int, list[Move]] = {}
        back: dict[int, list[int]] = {}
        for move in (*planned.moves, *planned.forced):
            out.setdefault(move.out, []).append(move)
        for move in planned.moves:
            back.setdefault(move.back, []).append(move.tensor)
        born, dies = trace.births_by_kernel, trace.deaths_by_kernel
        capacity = self.machine.device_bytes * (COMPAT_DEVICES if self.compat else 1)
        self.held = int(trace.pages[trace.lasts].sum()) * PAGE
        for kernel in range(len(trace)):
            self.held -= sum(self._bytes(tensor) for tensor in dies.get(kernel, ()) if tensor not in self.left)
            for move in out.get(kernel, ()):
                self._leave(move)
            for tensor in back.get(kernel, ()):
                if tensor in self.left:
                    self._fetch(tensor, ahead=True)
            self._operands(kernel)
            self.held += sum(map(self._bytes, born.get(kernel, ())))
            if not self._has_room(capacity):
                reason = f"kernel {kernel} finds no room for its operands"
                return G10Outcome(policy=self.policy, ideal_ns=trace.ideal_ns, reason=reason)
            end = self.now + int(trace.ns[kernel])
            self.runs.append((self.now, end))
            self.now = end
        return G10Outcome(
            policy=self.policy,
            ideal_ns=trace.ideal_ns,
            step_ns=max(trace.ideal_ns, round(self.now)),
            overlap_ns=overlap_ns(self.runs, self.busy),
            traffic=Traffic(*(self.moved.get((tier, inwards), 0) for tier, inwards in _WAYS)),
        )

    def _operands(self, kernel: int) -> None:
        """Fetch on demand what a kernel uses and is away, and wait for all that is on its way."""
        for tensor in self.trace.operands(kernel):
            if tensor in self.left and not (self.compat and self.trace.lasts[tensor]):
                self._fetch(tensor, ahead=False)
            self.now = max(self.now, self.arrives.pop(tensor, 0.0))

    def _bytes(self, tensor: int) -> int:
        return int(self.trace.pages[tensor]) * PAGE

    def _transfer(self, place: Tier, inwards: bool, nbytes: int, start: float) -> float:
        rate = self.machine.drive if place == "ssd" else self.machine.beside
        end = start + nbytes / (rate * _BINARY / 10**9)
        self.free[place, inwards] = max(self.free.get((place, inwards), 0.0), end)
        self.moved[place, inwards] = self.moved.get((place, inwards), 0) + nbytes
        self.busy.append((start, end))
        return end

    def _leave(self, move: Move) -> None:
        if move.tensor in self.left or move.tensor in self.arrives:
            return
        start = max(self.now, self.free.get((move.place, False), 0.0))
        end = self._transfer(move.place, False, self._bytes(move.tensor), start)
        self.left[move.tensor], self.place[move.tensor] = end, move.place
        self.leaving.append((end, self._bytes(move.tensor)))

    def _fetch(self, tensor: int, *, ahead: bool) -> None:
        """Fetch a tensor behind what the engine has to do, or at once if a kernel waits for it."""
        place, start = self.place.pop(tensor), max(self.now, self.left.pop(tensor))
        if ahead:
            start = max(start, self.free.get((place, True), 0.0))
        self.arrives[tensor] = self._transfer(place, True, self._bytes(tensor), start)
        self.held += self._bytes(tensor)

    def _has_room(self, capacity: int) -> bool:
        """Tell whether all that is held fits once enough of what leaves has left, for which a kernel waits."""
        self.leaving.sort()
        while self.leaving and (self.leaving[0][0] <= self.now or self.held > capacity):
            end, nbytes = self.leaving.pop(0)
            self.now = max(self.now, end)
            self.held -= nbytes
        return self.held <= capacity


_WAYS: tuple[tuple[Tier, bool], ...] = (("host", True), ("host", False), ("ssd", True), ("ssd", False))
