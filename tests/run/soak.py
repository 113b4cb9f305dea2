"""A training run of its own process: tells what it does on standard output, and can go on from a checkpoint.

soak.py STEPS BUDGET_BYTES CHECKPOINT DIE_AT [LAYERS ROWS]
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from tensortide.run.budget import Budget
from tensortide.run.usage import Usage

EVERY = 5
"""Steps between checkpoints."""


class Run:
    """A regression with dropout and batch norm on data that is drawn anew for every step."""

    def __init__(self, layers: int = 2, rows: int = 64) -> None:
        torch.manual_seed(0)
        block = [nn.Linear(32, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.1)]
        self.model = nn.Sequential(*(module for _ in range(layers) for module in (nn.Linear(32, 32), *block)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.rows, self.done = rows, 0

    def step(self) -> float:
        loss: torch.Tensor = self.model(torch.randn(self.rows, 32)).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.done += 1
        return loss.item()

    def save(self, path: Path) -> None:
        parts = (self.model.state_dict(), self.optimizer.state_dict(), torch.get_rng_state(), self.done)
        torch.save(parts, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def load(self, path: Path) -> None:
        model, optimizer, generator, self.done = torch.load(path)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        torch.set_rng_state(generator)

    def digest(self) -> str:
        """Of everything that decides how it goes on."""
        state = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
        for tensor in (*self.model.state_dict().values(), *(p.grad for p in self.model.parameters())):
            state.update(b"-" if tensor is None else tensor.detach().numpy().tobytes())
        for moments in self.optimizer.state.values():
            for moment in moments.values():
                state.update(moment.numpy().tobytes())
        return state.hexdigest()


def resident_kib(what: str = "VmRSS") -> int:
    """Of this process, as Linux has it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:"))


def train(run: Run, steps: int, budget_bytes: int, checkpoint: Path | None, die_at: int) -> Usage | None:
    """Go on up to ``steps``, under ``budget_bytes`` if that is not 0; killed in step ``die_at``."""
    budget = Budget(budget_bytes) if budget_bytes else None
    with budget or contextlib.nullcontext():
        while run.done < steps:
            loss = run.step()
            if checkpoint is not None and run.done % EVERY == 0:
                run.save(checkpoint)
            print(run.done, loss, resident_kib(), flush=True)  # noqa: T201  # the process that started this one reads it
            if run.done == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
    return budget.usage if budget else None


def give_back_what_is_freed() -> None:
    """Let blocks from 64 KiB on be mapped one by one: they are unmapped when they are freed."""
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(64 << 10)  # a budget leaves the heap alone
    ctypes.CDLL(None).mallopt(-3, 64 << 10)


def main(steps: str, budget_bytes: str, checkpoint: str, die_at: str, *shape: str) -> None:
    torch.set_num_threads(1)
    give_back_what_is_freed()
    with Budget(1 << 60):
        Run(1, 8).step()  # whatever is loaded when it is first used
    run, path = Run(*map(int, shape)), Path(checkpoint)
    if path.exists():
        run.load(path)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = resident_kib()
    usage = train(run, int(steps), int(budget_bytes), path if not shape else None, int(die_at))
    again, peak_bytes = (usage.recomputations, usage.peak_bytes) if usage else (0, 0)
    print("end", run.digest(), before, resident_kib("VmHWM"), again, peak_bytes, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
