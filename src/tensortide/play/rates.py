"""Lanes that share rates: tasks slowed by what runs beside them, and channels divided among all that pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tensortide.compiled import compiled

if TYPE_CHECKING:
    from tensortide.play.tasks import Ints

FULL = 1000
"""The rate of a lane that nothing slows, per mille."""


class Shares(NamedTuple):
    """Lanes that slow each other while several are busy.

    Given:
        lanes: The number of the first lanes that another lane slows; 0: no lane shares anything.
        beside: By each of these, the lane that slows it while busy.
        rate: Its rate then, per mille.
        sharers: Lanes with a part in a channel.
        channel: The channels of each sharer in turn, bounded by ``channel_at``.
        flows: For each of these, the number of streams of data that the sharer has on the channel while busy.
    Scratch, by lane:
        part, whole: The fraction of its full rate that it has now.
    Scratch, by channel:
        load: The streams of data of all busy sharers.
    """

    lanes: int
    beside: Ints
    rate: int
    sharers: Ints
    channel: Ints
    channel_at: Ints
    flows: Ints
    part: Ints
    whole: Ints
    load: Ints


@compiled
def share(until: Ints, busy: Ints, s: Shares, now: int) -> None:
    """Divide lanes and channels among all that runs from ``now`` on: what is busy ``until`` then.

    Each channel is divided equally among all that pass it: a task has the least share of those on its way, of what it
    has alone.
    """
    for lane in range(s.lanes):
        if until[lane] >= 0 and busy[lane] >= 0:
            _at_rate(until, s, lane, s.rate if until[s.beside[lane]] >= 0 else FULL, FULL, now)
    s.load[:] = 0
    for n in range(len(s.sharers)):
        if until[s.sharers[n]] >= 0:
            for i in range(s.channel_at[n], s.channel_at[n + 1]):
                s.load[s.channel[i]] += s.flows[i]
    for n in range(len(s.sharers)):
        if until[s.sharers[n]] >= 0:
            part, whole = 1, 1
            for i in range(s.channel_at[n], s.channel_at[n + 1]):
                if s.flows[i] * whole < part * s.load[s.channel[i]]:
                    part, whole = s.flows[i], s.load[s.channel[i]]
            _at_rate(until, s, s.sharers[n], part, whole, now)


@compiled
def _at_rate(until: Ints, s: Shares, lane: int, part: int, whole: int, now: int) -> None:
    """Let what runs on a lane go on at ``part`` of ``whole`` of the rate that it has alone."""
    # Rates are fractions, compared by cross-multiplication, so that no rounding changes one that stays. What is left at
    # the old rate is (until - now) * old part / old whole of work; at the new rate that takes so long, rounded up.
    if part * s.whole[lane] == whole * s.part[lane]:
        return
    left, rate = (until[lane] - now) * s.part[lane] * whole, s.whole[lane] * part
    until[lane] = now + (left + rate - 1) // rate
    s.part[lane], s.whole[lane] = part, whole
