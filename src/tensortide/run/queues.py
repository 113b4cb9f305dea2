"""Work that goes on after an op has returned: order between streams, and durations by events.

Known to the allocator: memory belongs to the stream that was current when it was taken. Freed, it is handed out again
on that stream at once, since work on one stream runs in order. Uses on other streams must be recorded
(``record_stream``). Known to the program: on which stream it computed a tensor, and what waits for that. A
recomputation runs on the stream of the op that needs it, which may be another one, and the program does not know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensortide.run.block import Block, Storage


class Streams:
    """Keeps bytes from being read before they are computed, and from being used again before they are read.

    - All streams wait for a recomputation, those that the program comes to use later too. The recomputation waits for
      nothing: its inputs were complete when the program computed what it brings back, and the op that needs that waits
      for it.
    - ``Block.streams`` names the streams of the bytes that a block has now: the one that they belong to, and those that
      were recorded. None: they belong to the ``first`` stream, where the budget was opened, and were used there only.
    - The first use on another stream is recorded, except of storages from before, which are never evicted.

    ``number`` and ``current`` return the current stream; ``record`` tells the allocator of a use.
    """

    def __init__(
        self, number: Callable[[], int], current: Callable[[], Any], record: Callable[[Storage, Any], None]
    ) -> None:
        self._number, self._current, self._record = number, current, record
        self.now = self.first = number()
        self.seen: dict[int, Any] = {self.now: current()}
        self._any_recomputed = False

    def order(self) -> None:
        """Look at the current stream; one that was not seen before waits for the recomputations so far."""
        self.now = now = self._number()
        if now not in self.seen:
            stream = self._current()
            if self._any_recomputed:
                for other in self.seen.values():
                    stream.wait_event(other.record_event())
            self.seen[now] = stream

    def recomputed(self) -> None:
        """An op was recomputed on the current stream: the others wait for it."""
        self._any_recomputed = True
        if len(self.seen) > 1:
            event = self.seen[self.now].record_event()
            for number, stream in self.seen.items():
                if number != self.now:
                    stream.wait_event(event)

    def taken(self, block: Block) -> None:
        """The bytes of ``block`` were allocated on the current stream."""
        self.taken_on(block, self.now)

    def taken_on(self, block: Block, number: int) -> None:
        """The bytes of ``block`` were allocated on the stream of that ``number``."""
        block.streams = None if number == self.first else [number]

    def use(self, blocks: Iterable[Block]) -> None:
        """The current stream is about to use ``blocks``."""
        if len(self.seen) > 1:
            for block in blocks:
                self._use(block, self.now)

    def _use(self, block: Block, number: int) -> None:
        streams = block.streams if block.streams is not None else [self.first]
        if number in streams or block.given or not block.nbytes:
            return
        held = block.own if block.own is not None else block()
        if held is not None and held.nbytes():  # else it is evicted, and about to be recomputed here
            self._record(held, self.seen[number])
            block.streams = [*streams, number]

    def leave(self, blocks: Iterable[Block]) -> None:
        """The budget ends: the program, which goes by where it computed ``blocks``, may use them on any stream."""
        for block in blocks:
            for number in self.seen:
                self._use(block, number)


MOST_PAIRS = 32
"""Durations that are outstanding before those of ops that are over are read."""


class Events:
    """Durations of ops by pairs of events in their queue. They are read many at once, after the ops are over, so that
    the program never waits for the device.

    ``event`` makes an event, ``current`` returns the current stream, ``synchronize`` waits for all work.
    """

    def __init__(self, event: Callable[[], Any], current: Callable[[], Any], synchronize: Callable[[], None]) -> None:
        self._event, self._current, self._synchronize = event, current, synchronize
        self._pairs: deque[tuple[Any, Any, Callable[[int], None]]] = deque()
        self._spare: list[Any] = []

    def mark(self) -> Any:
        """Record an event at the end of the current stream."""
        event = self._spare.pop() if self._spare else self._event()
        event.record(self._current())
        return event

    def since(self, began: Any, learn: Callable[[int], None]) -> None:
        """Call ``learn`` with the nanoseconds from ``began`` to now on the device, once they are known."""
        self._pairs.append((began, self.mark(), learn))
        if len(self._pairs) >= MOST_PAIRS:
            self._read()

    def wait(self) -> None:
        """Wait for what is outstanding."""
        if self._pairs:
            self._synchronize()
            self._read()

    def _read(self) -> None:
        while self._pairs and self._pairs[0][1].query():
            began, ended, learn = self._pairs.popleft()
            learn(round(began.elapsed_time(ended) * 1e6))
            self._spare += (began, ended)
