"""Searches that report their progress and end on Ctrl-C or SIGTERM."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tensortide.cli.console import progress
from tensortide.cli.interrupt import counted
from tensortide.progress import Search


@contextmanager
def searching(quiet: bool) -> Iterator[Search]:
    """Yield a search that Ctrl-C or SIGTERM ends; what it found is shown (``interrupt.counted``).

    Until it first asks whether it is to end, there is nothing to show, and they end the program.
    """
    with progress(quiet) as say, ExitStack() as stack:
        requests: list[int] | None = None

        def stopped() -> bool:
            nonlocal requests
            if requests is None and threading.current_thread() is threading.main_thread():
                requests = stack.enter_context(counted())
            return bool(requests)

        yield Search(say, stopped)
