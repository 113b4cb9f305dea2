"""Objects that ranks of a launch send to one rank, or from one to all, kept while the ranks run one after the other."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ALL = -1
"""Receiver of what a rank sends to all of its group."""


class Channel(NamedTuple):
    """The way of messages from the rank ``sender`` to the rank ``receiver`` (``ALL``) of the group of ``ranks``."""

    sender: int
    receiver: int
    ranks: tuple[int, ...]

    def is_like(self, other: Channel) -> bool:
        """True for a channel to another rank, between the same places of a group of as many ranks."""
        return self._places == other._places and (self.receiver == ALL or self.receiver != other.receiver)

    @property
    def _places(self) -> tuple[int, ...]:
        ends = (self.sender, self.receiver)
        return len(self.ranks), *(self.ranks.index(rank) if rank in self.ranks else ALL for rank in ends)


class Guess(NamedTuple):
    """An object that a rank assumed to be message ``number`` of a channel. ``packed`` is None for a message without
    which the rank cannot go on."""

    channel: Channel
    number: int
    packed: bytes | None


@dataclass
class Messages:
    """Messages of all ranks that have run, in the order in which each was sent.

    ``guesses``: those of the rank that ran last, with the channels of which it asked for more than was there.
    """

    sent: dict[Channel, list[bytes | None]] = field(default_factory=dict)
    guesses: list[Guess] = field(default_factory=list)
    taken: dict[Channel, int] = field(default_factory=dict)

    def save(self, file: Path) -> None:
        """Write the messages to ``file``."""
        file.write_bytes(pickle.dumps((self.sent, self.guesses)))

    def update(self, file: Path) -> None:
        """Take the messages of a ``file`` that ``save`` wrote in another process of the same program."""
        self.sent, self.guesses = pickle.loads(file.read_bytes())

    def begin(self, rank: int) -> None:
        """Let ``rank`` run, or run again: it has sent and received nothing yet."""
        self.sent = {channel: list(sent) for channel, sent in self.sent.items() if channel.sender != rank}
        self.guesses, self.taken = [], {}

    def send(self, channel: Channel, value: object) -> None:
        """Keep a message."""
        self.sent.setdefault(channel, []).append(_packed(value))

    def receive(self, channel: Channel) -> tuple[bool, Any]:
        """Return True and the next message of a channel, or False if nothing was sent. A sender that has not run is
        taken to send what the rank at its place in another group of as many has sent there."""
        number = self.taken[channel] = self.taken.get(channel, -1) + 1
        sent = self.sent.get(channel) or next((self.sent[each] for each in self.sent if each.is_like(channel)), [])
        packed = sent[number] if number < len(sent) else None
        return (False, None) if packed is None else (True, pickle.loads(packed))

    def guess(self, channel: Channel, value: object) -> None:
        """Note what is assumed to be the message that was just asked for."""
        self.guesses.append(Guess(channel, self.taken[channel], _packed(value)))

    def lack(self, channel: Channel) -> None:
        """Note that nothing replaces the message that was just asked for, without which the rank ends."""
        self.guesses.append(Guess(channel, self.taken[channel], None))

    def wrong(self, guesses: list[Guess]) -> list[Guess]:
        """Return those of ``guesses`` that differ from the message sent since."""
        found = [(guess, self.sent.get(guess.channel, [])[guess.number : guess.number + 1]) for guess in guesses]
        return [guess for guess, message in found if message and message[0] not in (None, guess.packed)]


def _packed(value: object) -> bytes | None:
    """``value`` as bytes, equal for equal values; None for one that cannot leave its process."""
    try:
        # Objects that the program shares by chance are shared no more after the first turn.
        return pickle.dumps(pickle.loads(pickle.dumps(value)))
    except Exception:  # noqa: BLE001 # objects of the program, whose methods may raise anything
        return None
