"""Processes of a divided step, one per rank: started together, and ended together when one of them fails."""

from __future__ import annotations

import gc
import multiprocessing.connection
import os
import pickle
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from tensortide.errors import RunError, TensortideError
from tensortide.executors import cores
from tensortide.executors.forks import prepared

Made = TypeVar("Made")
Kept = TypeVar("Kept")
PATIENCE_S = 120.0
"""Seconds that a rank waits for another before it gives up."""
PER_CORE, AT_LEAST = 4, 16
"""Processes for each core, at most, and how many any machine may have."""


def check_ranks(ranks: int) -> None:
    """Raise RunError for more processes than this machine has a use for."""
    own = cores()
    most = max(AT_LEAST, PER_CORE * own)
    if ranks > most:
        raise RunError(
            f"{ranks:,} devices would be as many processes, each with the whole model: with the {own} cores of this "
            f"machine at most {most} run. Run it on fewer devices"
        )


def threads_of(ranks: int) -> int:
    """Threads that each of so many ranks computes with."""
    return max(1, cores() // ranks)


def timed_steps(program: Callable[[], Made], steps: int, keep: Callable[[Made], Kept]) -> tuple[list[Kept], list[int]]:
    """Call ``program`` for so many steps, which all ranks begin together: what to ``keep`` of each, and its ns."""
    import torch.distributed as dist

    kept, times = [], []
    gc.collect()
    for _ in range(steps):
        dist.barrier()
        began = time.monotonic_ns()
        made = program()
        times.append(time.monotonic_ns() - began)
        kept.append(keep(made))
    return kept, times


def run_ranks(work: Callable[[int], Made], ranks: int, threads: int | None = None) -> list[Made]:
    """Call ``work`` with its rank in each of so many processes, which ``torch.distributed`` (gloo) joins; return what
    they return, by rank.

    ``work`` and its results are pickled; what it prints is not shown. ``threads`` are those that each computes with
    (default: ``threads_of(ranks)``): sums depend on their number. Raises RunError with the message of the rank that
    failed first, or that says how it ended; the others are ended. None outlives the call.
    """
    check_ranks(ranks)
    threads = threads or threads_of(ranks)
    with tempfile.TemporaryDirectory(prefix="tensortide-ranks-") as name:
        folder = Path(name)
        processes = [prepared(_rank, work, rank, ranks, threads, folder) for rank in range(ranks)]
        try:
            for process in processes:
                process.start()
            _watch(processes, folder)
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
            for process in processes:
                if process.pid is not None:
                    process.join()
        return [pickle.loads((folder / f"result{rank}").read_bytes()) for rank in range(ranks)]


def _watch(processes: list[Any], folder: Path) -> None:
    """Wait until all have ended. Raises RunError as soon as one has failed."""
    waiting = dict(enumerate(processes))
    while waiting:
        multiprocessing.connection.wait([process.sentinel for process in waiting.values()])
        ended = {rank: process for rank, process in waiting.items() if process.exitcode is not None}
        failed = {rank: process.exitcode for rank, process in ended.items() if process.exitcode}
        if failed:
            raise RunError(_first_failure(failed, len(processes), folder))
        for rank in ended:
            del waiting[rank]


def _first_failure(failed: dict[int, int], ranks: int, folder: Path) -> str:
    """The message of the failure that caused the others: a rank that was killed, or the earliest error."""
    others = "; the others were ended" if ranks > 1 else ""
    for rank, status in failed.items():
        if status < 0:
            return f"{_name(rank, ranks)} was killed by signal {-status}{others}"
    found = []
    for path in folder.glob("error*"):
        when, text = path.read_text().split("\n", 1)
        found.append((int(when), f"{_name(int(path.name.removeprefix('error')), ranks)}: {text}"))
    if found:
        return min(found)[1]
    rank, status = next(iter(failed.items()))
    return f"{_name(rank, ranks)} ended with status {status}{others}"


def _name(rank: int, ranks: int) -> str:
    return f"rank {rank} of {ranks}" if ranks > 1 else "the one process"


def _rank(work: Callable[[int], Any], rank: int, ranks: int, threads: int, folder: Path) -> None:
    """Join the other processes, work, and leave the result or the error in ``folder``."""
    import torch
    import torch.distributed as dist

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # standard output is the report
    torch.set_num_threads(threads)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=PATIENCE_S),
        )
        made = work(rank)
        dist.barrier()
        dist.destroy_process_group()
        _write(folder / f"result{rank}", pickle.dumps(made))
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it is, the asker is to hear of it
        text = str(error) if isinstance(error, TensortideError) else f"{type(error).__name__}: {error}"
        _write(folder / f"error{rank}", f"{time.monotonic_ns()}\n{text}".encode())
        os._exit(1)  # without waiting for threads of the group, whose peers may be gone


def _write(path: Path, data: bytes) -> None:
    hidden = path.with_name(f".{path.name}")
    hidden.write_bytes(data)
    hidden.rename(path)
