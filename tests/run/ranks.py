"""Processes of a group, which run the same functions at the same time: ``python -m tests.run.ranks RANK WORLD FILE``.

Each reads lines ``[module, function, arguments]`` and answers each with one line: what the function returns.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import subprocess
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.conftest import ROOT

PATIENCE_S = 280.0
"""Longest time for one answer: a busy machine takes minutes for what takes seconds on an idle one."""


class Ranks:
    """``world`` processes with a group over ``folder``. If one fails all are ended, and the next call starts others."""

    def __init__(self, world: int, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.started = 0
        self.processes: list[subprocess.Popen[str]] = []

    def call(self, function: str, *arguments: Any) -> list[Any]:
        """The answer of each rank to ``module:function`` with its rank, the size of the group, and ``arguments``."""
        if not self.processes:
            self._start()
        module, _, name = function.partition(":")
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps([module, name, arguments]) + "\n")
            process.stdin.flush()
        answers: dict[int, Any] = {}
        until = time.monotonic() + PATIENCE_S
        with selectors.DefaultSelector() as selector:
            for rank, process in enumerate(self.processes):
                assert process.stdout is not None
                selector.register(process.stdout, selectors.EVENT_READ, rank)
            while len(answers) < self.world:
                ready = selector.select(max(0.0, until - time.monotonic()))
                if not ready:
                    self._fail(f"{function}: only ranks {sorted(answers)} answered within {PATIENCE_S} s")
                for key, _ in ready:
                    line = key.fileobj.readline()  # type: ignore[union-attr]
                    if not line or "error" in (answer := json.loads(line)):
                        self._fail(f"{function} failed on rank {key.data}: {answer['error'] if line else 'it ended'}")
                    answers[key.data] = answer["result"]
        return [answers[rank] for rank in range(self.world)]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.communicate()
        self.processes = []

    def _start(self) -> None:
        self.started += 1
        store = self.folder / f"store{self.world}-{self.started}"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "GLOO_SOCKET_IFNAME": "lo"}
        for rank in range(self.world):
            command = [sys.executable, "-m", "tests.run.ranks", str(rank), str(self.world), str(store)]
            pipe = subprocess.PIPE
            self.processes.append(
                subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True)
            )

    def _fail(self, message: str) -> None:
        self.close()
        raise AssertionError(message)


def main(rank: int, world: int, store: str) -> None:
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=PATIENCE_S)
    )
    for line in sys.stdin:
        module, name, arguments = json.loads(line)
        try:
            function = getattr(importlib.import_module(module), name)
            gc.collect()
            gc.freeze()  # budgets look for tensors, and the collector for garbage, among what comes later alone
            answer = {"result": function(rank, world, *arguments)}
        except Exception:  # noqa: BLE001  # the process that started this one reports it
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
