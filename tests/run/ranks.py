"""Processes of a group, which run the same functions at the same time."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
import traceback
import warnings
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tensortide.executors.forks import prepared

PATIENCE_S = 280.0
"""Longest time for one answer: a busy machine takes minutes for what takes seconds on an idle one."""


class Ranks:
    """``world`` processes with a group over ``folder``. If one fails all are ended, and the next call starts others."""

    def __init__(self, world: int, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.started = 0
        self.processes: list[BaseProcess] = []
        self.pipes: list[Connection] = []

    def call(self, function: str, *arguments: Any) -> list[Any]:
        """The answer of each rank to ``module:function`` with its rank, the size of the group, and ``arguments``."""
        if not self.processes:
            self._start()
        for pipe in self.pipes:
            pipe.send((function, arguments))
        answers: dict[int, Any] = {}
        until = time.monotonic() + PATIENCE_S
        while len(answers) < self.world:
            ready = wait(
                [self.pipes[rank] for rank in range(self.world) if rank not in answers], until - time.monotonic()
            )
            if not ready:
                self._fail(f"{function}: only ranks {sorted(answers)} answered within {PATIENCE_S} s")
            for rank in [rank for rank, pipe in enumerate(self.pipes) if pipe in ready]:
                answers[rank] = self._answer(rank, function)
        return [answers[rank] for rank in range(self.world)]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
        for pipe in self.pipes:
            pipe.close()
        self.processes, self.pipes = [], []

    def _start(self) -> None:
        self.started += 1
        store = self.folder / f"store{self.world}-{self.started}"
        for rank in range(self.world):
            here, there = Pipe()
            process = prepared(serve, there, rank, self.world, str(store))
            process.start()
            there.close()
            self.processes.append(process)
            self.pipes.append(here)

    def _answer(self, rank: int, function: str) -> Any:
        try:
            answer, error = self.pipes[rank].recv()
        except EOFError:
            answer, error = None, "it ended"
        if error is not None:
            self._fail(f"{function} failed on rank {rank}: {error}")
        return answer

    def _fail(self, message: str) -> None:
        self.close()
        raise AssertionError(message)


def serve(calls: Connection, rank: int, world: int, store: str) -> None:
    """Answer each of ``calls``, a function and its arguments, with what it returns and no error, or none and one."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=PATIENCE_S)
    )
    while True:
        try:
            name, arguments = calls.recv()
        except EOFError:
            return
        module, _, function = name.partition(":")
        answer: tuple[Any, str | None]
        try:
            call = getattr(importlib.import_module(module), function)
            gc.collect()
            gc.freeze()  # budgets look for tensors, and the collector for garbage, among what comes later alone
            answer = (call(rank, world, *arguments), None)
        except Exception:  # noqa: BLE001  # the process that started this one reports it
            answer = (None, traceback.format_exc())
        calls.send(answer)
