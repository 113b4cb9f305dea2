"""G10's policies: a table, in the order in which its figures show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tensortide.errors import PlanError
from tensortide.replays.g10 import pages
from tensortide.replays.g10.flashneuron import flashneuron
from tensortide.replays.g10.granular import g10_gds, g10_host
from tensortide.replays.g10.machine import G10Machine, Trace
from tensortide.replays.g10.outcome import G10Outcome
from tensortide.replays.g10.paged import Request, paged
from tensortide.replays.g10.planner import scheme
from tensortide.search_limit import Look, no_look

WINDOW = 8
"""Kernels that DeepUM+ looks ahead."""


class Policy(Protocol):
    """Plays a trace on a machine; ``compat`` with the defects of the original that its documentation names. ``look`` is
    called now and then; it may raise."""

    def __call__(
        self, trace: Trace, machine: G10Machine, *, compat: bool = False, look: Look = no_look
    ) -> G10Outcome: ...


class Row(NamedTuple):
    """A policy, its name in figures, and what it does in a few words."""

    play: Policy
    title: str
    about: str


def ideal(trace: Trace, machine: G10Machine, *, compat: bool = False, look: Look = no_look) -> G10Outcome:
    """Every tensor is resident all the time."""
    return G10Outcome(policy="ideal", ideal_ns=trace.ideal_ns, step_ns=trace.ideal_ns)


def uvm_lru(trace: Trace, machine: G10Machine, *, compat: bool = False, look: Look = no_look) -> G10Outcome:
    """Kernels fault pages in; the oldest leave, dead or not."""
    return paged("uvm-lru", trace, machine, (), look=look)


def deepum(trace: Trace, machine: G10Machine, *, compat: bool = False, look: Look = no_look) -> G10Outcome:
    """While a kernel runs, the operands of the one ``WINDOW`` later are fetched; pages outside of the window leave,
    those of dead tensors without being moved."""
    count = len(trace)
    asked = [Request(k, t, pages.FETCH) for k in range(count) for t in trace.operands((k + WINDOW) % count)]
    return paged("deepum", trace, machine, asked, ahead=WINDOW, lazy=True, look=look)


def g10(trace: Trace, machine: G10Machine, *, compat: bool = False, look: Look = no_look) -> G10Outcome:
    """Move page by page what the planner says; the oldest pages leave where it is wrong."""
    planned, count = scheme(trace, machine, look=look), len(trace)
    asked = [Request(kernel % count, tensor, pages.DROP) for kernel, tensor in planned.freed]
    tiers = {"host": pages.TO_HOST, "ssd": pages.TO_DRIVE}
    asked += [Request(move.out, move.tensor, tiers[move.place]) for move in planned.moves]
    asked += [Request(kernel, tensor, pages.FETCH) for tensor, kernel in enumerate(planned.preallocated) if kernel >= 0]
    asked += [Request(move.back, move.tensor, pages.FETCH) for move in planned.moves]
    return paged("g10", trace, machine, asked, look=look)


POLICIES: dict[str, Row] = {
    "ideal": Row(ideal, "Ideal", "all tensors resident"),
    "uvm-lru": Row(uvm_lru, "UVM-LRU", "pages on demand, the oldest leave"),
    "flashneuron": Row(flashneuron, "FlashNeuron", "activations to the drive"),
    "deepum": Row(deepum, "DeepUM+", "pages fetched 8 kernels ahead"),
    "g10-gds": Row(g10_gds, "G10-GDS", "G10's moves, drive only, whole tensors"),
    "g10-host": Row(g10_host, "G10-Host", "G10's moves, whole tensors"),
    "g10": Row(g10, "G10", "G10's moves, page by page"),
}


def chosen(text: str) -> tuple[str, ...]:
    """Read names of policies, separated by commas; ``all`` stands for all. Raises PlanError for any other name."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in POLICIES and name != "all"]:
        raise PlanError(f"there is no policy {unknown[0]!r}: it is all, or some of {', '.join(POLICIES)}")
    return tuple(POLICIES) if "all" in names else tuple(dict.fromkeys(names))


def outcomes(
    trace: Trace, machine: G10Machine, names: Sequence[str], *, compat: bool = False, look: Look = no_look
) -> list[G10Outcome]:
    """Play the policies called ``names``. ``look`` is called now and then; it may raise."""
    return [POLICIES[name].play(trace, machine, compat=compat, look=look) for name in names]
