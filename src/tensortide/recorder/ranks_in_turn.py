"""Ranks of one launch captured one after the other, each with the objects that those before it have sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from tensortide.errors import CaptureError
from tensortide.progress import Say, silent
from tensortide.recorder.messages import Guess, Messages

if TYPE_CHECKING:
    from tensortide.graph.model import Graph

CaptureRank: TypeAlias = "Callable[[int, Messages], Graph]"
"""Captures the step of a rank, which receives and sends ``Messages``."""
_MOST_RUNS = 9
"""Most runs of one rank: of each part of the model that it has it may have to learn what comes in."""


def in_turn(
    capture: CaptureRank,
    first: int,
    others: Callable[[int, Graph], Iterable[int]] = lambda rank, graph: (),
    say: Say = silent,
    last: Iterable[int] = (),
) -> dict[int, Graph]:
    """Capture the rank ``first``, then the ``others`` that the steps of captured ranks call for, theirs among them, and
    then the ranks ``last``, which receive what those at their places in other groups have received.

    A rank that cannot go on without the message of one that has not run, or fails on what it assumed to be one, is
    captured again after that one; likewise one that assumed another message than was sent then. The result has the rank
    ``first``, and all that had to run.

    Raises what ``capture`` raises for a rank that has all its messages, and CaptureError for one that assumes another
    message than is sent each time it runs.
    """
    messages = Messages()
    graphs: dict[int, Graph] = {}
    failures: dict[int, CaptureError] = {}
    guesses: dict[int, list[Guess]] = {}
    runs: dict[int, int] = {}
    waiting = [first]
    while waiting:
        rank = waiting.pop(0)
        runs[rank] = runs.get(rank, 0) + 1
        more: Iterable[int]
        try:
            graphs[rank] = capture(rank, messages)
        except CaptureError as error:
            if not messages.guesses or runs[rank] == _MOST_RUNS:
                raise
            # It lacked a message, or failed on one that it assumed.
            failures[rank] = error
            channels = [guess.channel for guess in messages.guesses]
            more = [each for channel in channels for each in _before(rank, channel.sender, channel.ranks)]
            say(f"rank {rank} needs what rank {channels[-1].sender} sends, which runs first")
        else:
            failures.pop(rank, None)
            more = others(rank, graphs[rank])
        guesses[rank] = messages.guesses
        waiting += [each for each in dict.fromkeys(more) if each not in runs and each not in waiting]
        if not waiting and not any(messages.wrong(own) for own in guesses.values()):
            waiting = [each for each in last if each not in runs][:1]
        if not waiting:
            waiting = [each for each, own in guesses.items() if messages.wrong(own)][:1]
            if waiting and runs[waiting[0]] == _MOST_RUNS:
                sender = messages.wrong(guesses[waiting[0]])[0].channel.sender
                raise CaptureError(
                    f"rank {waiting[0]} was captured {_MOST_RUNS} times, and each time assumed another message than "
                    f"rank {sender} sends: what ranks {waiting[0]} and {sender} send depends on the other in turn"
                )
    if failures:
        raise next(iter(failures.values()))
    return graphs


def _before(rank: int, sender: int, ranks: tuple[int, ...]) -> Iterable[int]:
    """The ranks of a group that run before ``rank``, which waits for ``sender``: a chain of stages from its begin."""
    ahead = ranks[: ranks.index(rank)]
    return ahead if sender in ahead else (sender,)
