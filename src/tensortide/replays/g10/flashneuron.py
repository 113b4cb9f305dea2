"""FlashNeuron: activations of the forward pass go to the drive, the first ones first, until the rest fits. All have
left before the loss, and come back during the backward pass as soon as there is room."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from tensortide.replays.g10.machine import GIB, PAGE, G10Machine, Trace
from tensortide.replays.g10.outcome import G10Outcome, Traffic
from tensortide.replays.g10.overlap import overlap_ns
from tensortide.search_limit import Look, no_look

_NAME = "flashneuron"
_BINARY = GIB / 10**9
"""Rates of the simulator are in units of 2**30 bytes."""


@dataclass(slots=True)
class Pages:
    """A stretch of pages in which tensors have places next to each other: the first gap that is large enough."""

    count: int
    gaps: list[tuple[int, int]] = field(default_factory=list)
    places: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gaps = [(0, self.count)] if self.count else []

    @property
    def free(self) -> int:
        """Pages that are not taken."""
        return sum(end - begin for begin, end in self.gaps)

    def take(self, tensor: int, pages: int, *, right: bool = False) -> bool:
        """Place ``tensor`` in the first gap from the left, or from the right, if one has so many ``pages``."""
        order = reversed(range(len(self.gaps))) if right else range(len(self.gaps))
        for number in order:
            begin, end = self.gaps[number]
            if end - begin >= pages:
                self.places[tensor] = (end - pages, end) if right else (begin, begin + pages)
                rest = (begin, end - pages) if right else (begin + pages, end)
                self.gaps[number : number + 1] = [rest] if rest[0] < rest[1] else []
                return True
        return False

    def give(self, tensor: int) -> None:
        """Free the place of ``tensor``."""
        begin, end = self.places.pop(tensor)
        if begin == end:
            return
        at = bisect.bisect(self.gaps, (begin, end))
        if at < len(self.gaps) and self.gaps[at][0] == end:
            end = self.gaps.pop(at)[1]
        if at and self.gaps[at - 1][1] == begin:
            at -= 1
            begin = self.gaps.pop(at)[0]
        self.gaps.insert(at, (begin, end))


@dataclass(frozen=True, slots=True)
class Offloads:
    """Tensors to offload, by the kernel at whose start they leave. ``room``: pages that tensors of one step share;
    ``footprint``: the most that one kernel uses. ``fits``: the others fit."""

    leaves: dict[int, int]
    room: int
    footprint: int
    fits: bool


def offloads(trace: Trace, machine: G10Machine) -> Offloads:
    """Choose what to offload: locals of the forward pass that live past the loss, in the order of their first use,
    until the others take less than is free beside what lasts and the largest kernel. Each leaves at the start of its
    last idle period that begins before the loss."""
    deaths, uses, loss = trace.deaths, trace.uses, trace.loss
    room = machine.device_bytes // PAGE - int(trace.pages[trace.lasts].sum())
    footprint = max((sum(int(trace.pages[t]) for t in trace.operands(k)) for k in range(len(trace))), default=0)
    across = [t for t in range(len(uses)) if not trace.lasts[t] and uses[t] and uses[t][0] < loss < deaths[t]]
    across.sort(key=lambda tensor: (uses[tensor][0], tensor))
    left, leaves = sum(int(trace.pages[tensor]) for tensor in across), {}
    for tensor in across:
        if left < room - footprint:
            break
        last = max(use for use in uses[tensor] if use < loss)
        following = next((use for use in uses[tensor] if use > last), last + 1)
        if following > last + 1 and last + 1 < loss:
            left -= int(trace.pages[tensor])
            leaves[tensor] = last + 1
    return Offloads(leaves, room, footprint, left < room - footprint)


def flashneuron(trace: Trace, machine: G10Machine, *, compat: bool = False, look: Look = no_look) -> G10Outcome:
    """Play FlashNeuron; it cannot run a step whose other tensors do not fit."""
    chosen = offloads(trace, machine)
    if not chosen.fits:
        return G10Outcome(policy=_NAME, ideal_ns=trace.ideal_ns, reason="what cannot be offloaded does not fit")
    return _Player(trace, machine, chosen).play()


class _Player:
    """One step: one transfer at a time each way, at the rate of the drive and without latency."""

    def __init__(self, trace: Trace, machine: G10Machine, chosen: Offloads) -> None:
        self.trace, self.chosen = trace, chosen
        self.pages_per_ns = machine.drive * _BINARY / PAGE / 10**9
        self.memory = Pages(chosen.room)
        self.now = self.out_free = self.in_free = 0.0
        self.leaving: list[tuple[float, int]] = []
        self.arrives: dict[int, float] = {}
        self.busy: list[tuple[float, float]] = []
        self.runs: list[tuple[float, float]] = []
        self.fetches: list[int] = self._order()

    def _order(self) -> list[int]:
        """Return what was offloaded, in the order in which the backward pass uses it."""
        uses, loss = self.trace.uses, self.trace.loss
        return sorted(self.chosen.leaves, key=lambda t: (next(use for use in uses[t] if use >= loss), t))

    def play(self) -> G10Outcome:
        trace, leaves = self.trace, self.chosen.leaves
        born, dies = trace.births_by_kernel, trace.deaths_by_kernel
        starts: dict[int, list[int]] = {}
        for tensor, kernel in leaves.items():
            starts.setdefault(kernel, []).append(tensor)
        for kernel in range(len(trace)):
            self._settle()
            if kernel == trace.loss and self.leaving:
                self.now = self.leaving[-1][0]
                self._settle()
            if kernel >= trace.loss:
                self._fetch()
            fine = self._operands(kernel) and all(self._allocate(tensor) for tensor in born.get(kernel, ()))
            if not fine:
                return G10Outcome(
                    policy=_NAME, ideal_ns=trace.ideal_ns, reason=f"kernel {kernel} finds no room for its operands"
                )
            for tensor in starts.get(kernel, ()):
                self.out_free = self._transfer(tensor, max(self.now, self.out_free))
                self.leaving.append((self.out_free, tensor))
            end = self.now + int(trace.ns[kernel])
            self.runs.append((self.now, end))
            self.now = end
            for tensor in dies.get(kernel + 1, ()):
                if tensor in self.memory.places:
                    self.memory.give(tensor)
        nbytes = sum(int(trace.pages[tensor]) for tensor in leaves) * PAGE
        return G10Outcome(
            policy=_NAME,
            ideal_ns=trace.ideal_ns,
            step_ns=max(trace.ideal_ns, round(self.now)),
            overlap_ns=overlap_ns(self.runs, self.busy),
            traffic=Traffic(ssd_in=nbytes, ssd_out=nbytes),
        )

    def _transfer(self, tensor: int, start: float) -> float:
        end = start + int(self.trace.pages[tensor]) / self.pages_per_ns
        self.busy.append((start, end))
        return end

    def _settle(self) -> None:
        """Free what has left by now."""
        while self.leaving and self.leaving[0][0] <= self.now:
            self.memory.give(self.leaving.pop(0)[1])

    def _fetch(self) -> None:
        """Begin the next fetch if the engine is free and there is room besides that of the largest kernel."""
        while self.fetches and self.in_free <= self.now:
            tensor = self.fetches[0]
            pages = int(self.trace.pages[tensor])
            if self.memory.free - pages < self.chosen.footprint or not self.memory.take(tensor, pages, right=True):
                return
            self.in_free = self.arrives[tensor] = self._transfer(self.fetches.pop(0), self.now)

    def _operands(self, kernel: int) -> bool:
        """Wait for operands that come back; return whether they can."""
        if kernel < self.trace.loss:
            return True
        for tensor in self.trace.operands(kernel):
            if tensor not in self.chosen.leaves:
                continue
            while tensor not in self.arrives:
                before = len(self.fetches)
                self.now = max(self.now, self.in_free)
                self._fetch()
                if len(self.fetches) == before:
                    return False
            self.now = max(self.now, self.arrives[tensor])
            self._fetch()
        return True

    def _allocate(self, tensor: int) -> bool:
        """Place a tensor, once enough has left; return whether it can be."""
        while not self.memory.take(tensor, int(self.trace.pages[tensor]), right=tensor in self.chosen.leaves):
            if not self.leaving:
                return False
            self.now = max(self.now, self.leaving[0][0])
            self._settle()
        return True
