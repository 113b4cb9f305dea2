"""Workers that evaluate many independent points, as options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tensortide.executors import LOCAL, Where
from tensortide.request import Opt, Request

SERIAL_S = 2.0
"""Seconds for which one process works before it starts others: about as long as these take to start."""


@dataclass(frozen=True, kw_only=True)
class WorkerRequest(Request):
    """The workers that evaluate points."""

    GROUP = "Cores and clusters at work"

    threads: Annotated[
        int | None,
        Opt(
            "Workers on this machine, threads or processes (default: one per core). The result does not depend on "
            "their number.",
            least=1,
        ),
    ] = None
    cluster: Annotated[
        str | None,
        Opt(
            f"Ray cluster to use instead: its address (HOST:PORT, auto), or {LOCAL} to start one on this machine.",
            value="ADDRESS",
        ),
    ] = None

    @property
    def where(self) -> Where:
        """The workers."""
        return Where(self.threads, cluster=self.cluster, serial_s=SERIAL_S)
