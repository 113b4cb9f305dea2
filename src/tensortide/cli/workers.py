"""``--threads`` and ``--cluster``: the options of all verbs that evaluate many points independently of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from cyclopts import Parameter, validators

from tensortide.cli.source import option
from tensortide.executors import LOCAL, Where

ALONE_S = 2.0
"""Seconds of work that one process does alone, as long as others would take to start."""
Threads: TypeAlias = Annotated[
    int | None,
    option(
        "--threads --jobs",
        "Evaluations at a time, in threads or processes of this machine (default: one per core). The result does not "
        "depend on it.",
    ),
    Parameter(validator=validators.Number(gte=1)),
]
ClusterAddress: TypeAlias = Annotated[
    str | None,
    option(
        "--cluster",
        f"Ray cluster that evaluates in their place: its address (HOST:PORT, auto), or {LOCAL} for one started here.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class WorkerOptions:
    """The place where points are evaluated."""

    threads: Threads = None
    cluster: ClusterAddress = None

    @property
    def where(self) -> Where:
        """The place."""
        return Where(self.threads, cluster=self.cluster, alone_s=ALONE_S)
