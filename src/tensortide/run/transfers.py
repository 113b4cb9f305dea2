"""Copies between the device and tiers: each on the copy engine of a link and a direction, one after the other.

What a program of the device waits for is a ``Transfer``. Engines differ in where its bytes are copied: ``AtOnce`` in
the thread that asks, ``Threaded`` in a thread of its own, so that the program goes on meanwhile; ``run.gpu_mover``
copies on streams of a GPU.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

from tensortide.errors import RunError
from tensortide.units import format_bytes

LOOK_S = 1.0
"""So often a thread that waits looks whether the engine still works."""


class Transfer:
    """A copy of ``nbytes`` of the storage number ``storage`` over an engine.

    ``action`` copies. ``place``: the tier, and the first and last byte there. ``after``: transfers that end before it
    starts; if one of them fails, so does it. ``held``: what has the bytes on the device; whoever notices that the
    transfer is over lets go of it. ``error``: why it failed. Times are 0 until then.
    """

    __slots__ = (
        *("_over", "action", "after", "began_ns", "ended_ns", "engine", "error", "held", "link", "nbytes", "place"),
        "storage",
    )

    def __init__(
        self,
        engine: CopyEngine,
        link: str,
        storage: int,
        place: tuple[int, int],
        after: Sequence[Transfer],
        held: Any,
        action: Callable[[], None],
    ) -> None:
        self.engine, self.link, self.storage, self.place = engine, link, storage, place
        self.nbytes = place[1] - place[0]
        self.after, self.held, self.action = after, held, action
        self.began_ns = self.ended_ns = 0
        self.error: BaseException | None = None
        self._over = threading.Event()

    @property
    def over(self) -> bool:
        """True once it has ended, or failed."""
        return self._over.is_set()

    def wait(self) -> None:
        """Return when it is over. Does not raise."""
        while not self.over:
            if not self.engine.works():
                self.end(RuntimeError("its thread has ended"))
            self._over.wait(LOOK_S)

    def run(self) -> None:
        """Copy, and note how that went: in the engine's thread."""
        error: BaseException | None = None
        try:
            for other in self.after:
                other.wait()
                if other.error is not None:
                    raise other.error
            self.began_ns = time.perf_counter_ns()
            self.action()
        except BaseException as caught:  # noqa: BLE001  # whoever waits raises it
            error = caught
        self.end(error)

    def end(self, error: BaseException | None) -> None:
        """Note that it is over."""
        if not self._over.is_set():
            self.ended_ns = time.perf_counter_ns()
            self.began_ns = self.began_ns or self.ended_ns
            self.after, self.action, self.error = (), _nothing, error
            self._over.set()

    def failure(self) -> RunError:
        """The error for a transfer that has failed."""
        error = self.error
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return RunError(
            f"moving {format_bytes(self.nbytes)} over {self.engine.name} failed: {reason}. The step was not finished; "
            "tensors that can be had are in memory again"
        )


def _nothing() -> None:
    """Stand for an action that is over, and lets go of what it referred to."""


class CopyEngine(Protocol):
    """Runs transfers in the order in which they are submitted. ``name``: link and direction."""

    name: str

    def submit(self, transfer: Transfer) -> None:
        """Let the transfer run. Does not raise: it fails."""

    def works(self) -> bool:
        """False if transfers that are not over yet will never be."""

    def close(self) -> None:
        """Run no more transfers. All have ended."""


class AtOnce:
    """An engine whose transfers are synchronous."""

    def __init__(self, name: str) -> None:
        self.name = name

    def submit(self, transfer: Transfer) -> None:
        """Run the transfer."""
        transfer.run()

    def works(self) -> bool:
        """Every transfer is over when it was submitted."""
        return True

    def close(self) -> None:
        """Do nothing."""


class Threaded:
    """An engine with a thread of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._queue = SimpleQueue[Transfer | None]()
        self._thread = threading.Thread(target=self._work, name=f"tensortide {name}", daemon=True)
        self._thread.start()

    def submit(self, transfer: Transfer) -> None:
        """Let the thread run the transfer when its turn comes."""
        self._queue.put(transfer)

    def works(self) -> bool:
        """False if the thread has ended, by what another one has done to it."""
        return self._thread.is_alive()

    def _work(self) -> None:
        while (transfer := self._queue.get()) is not None:
            transfer.run()
            del transfer  # nothing of it is kept until the next one comes

    def close(self) -> None:
        """End the thread."""
        self._queue.put(None)
        self._thread.join()
