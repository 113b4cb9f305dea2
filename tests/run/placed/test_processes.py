"""The processes of ranks: each computes with its part of the cores that this process may use."""

from __future__ import annotations

import os

import pytest

from tensortide.run.placed import processes


def test_ranks_share_the_cores_that_this_process_may_use_not_those_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7, 9}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert [processes.threads_of(ranks) for ranks in (1, 2, 3, 8)] == [4, 2, 1, 1]
