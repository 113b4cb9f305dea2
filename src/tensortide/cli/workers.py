"""``--threads`` and ``--cluster``, the options of all verbs that evaluate many independent points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from cyclopts import Parameter, validators

from tensortide.cli.source import option
from tensortide.executors import LOCAL, Where

SERIAL_S = 2.0
"""Seconds for which one process works before it starts others: about as long as these take to start."""
Threads: TypeAlias = Annotated[
    int | None,
    option(
        "--threads --jobs",
        "Workers on this machine, threads or processes (default: one per core). The result does not depend on their "
        "number.",
    ),
    Parameter(validator=validators.Number(gte=1)),
]
ClusterAddress: TypeAlias = Annotated[
    str | None,
    option(
        "--cluster",
        f"Ray cluster to use instead: its address (HOST:PORT, auto), or {LOCAL} to start one on this machine.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class WorkerOptions:
    """Options of the workers that evaluate points."""

    threads: Threads = None
    cluster: ClusterAddress = None

    @property
    def where(self) -> Where:
        """The workers."""
        return Where(self.threads, cluster=self.cluster, serial_s=SERIAL_S)
