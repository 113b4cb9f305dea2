"""Storages that move between a GPU that is none and tiers: every copy is in order with the kernels around it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch

from tensortide.run import gpu_mover
from tensortide.run.budget import Budget
from tensortide.run.link_speed import swept_links
from tensortide.run.movers import TransferMode
from tests.run.fake_gpu import FakeGPU, Queue, fake_gpu
from tests.run.follow_steps import built, same_as_without, tower
from tests.run.same import UNLIMITED
from tests.run.test_tiers import offloading, run_graph


def short() -> Any:
    return tower(3)


def _bytes_of(held: Any) -> torch.Tensor:
    """As a view of the storage, whose reads and writes are known."""
    return torch.empty(0, dtype=torch.uint8).set_(held, 0, (held.nbytes(),), (1,))


def trained(
    monkeypatch: pytest.MonkeyPatch, links: tuple[str, ...], folder: Path, *, transfers: TransferMode = "serial"
) -> FakeGPU:
    """Two steps under a plan that moves storages; results are those without."""
    graph = run_graph(short)
    step = built(short)
    with monkeypatch.context() as patches, fake_gpu(patches) as gpu:
        patches.setattr(gpu_mover, "pinned", lambda nbytes: torch.empty(nbytes, dtype=torch.uint8))
        if transfers == "serial":  # the kernels of copies pass, too
            patches.setattr(gpu_mover, "NoModes", contextlib.nullcontext)
            patches.setattr(gpu_mover, "_bytes_of", _bytes_of)
        plan = offloading(graph, links, given=True)
        with Budget(
            UNLIMITED, plan, graph=graph, device="cpu", workspace=False, transfers=transfers, offload_dir=folder
        ) as budget:
            step()
            step()
    assert (budget.usage.followed_steps, budget.usage.recomputations) == (2, 0)
    assert same_as_without(short, step, 3)
    return gpu


def test_copies_are_in_order_with_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu = trained(monkeypatch, ("host", "ssd"), tmp_path)
    assert gpu.kernels.count("aten::copy_") > 20
    assert gpu.races == []


def test_a_copy_that_does_not_wait_for_its_source_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain = Queue.wait_event

    def wait_event(queue: Queue, event: Any) -> None:
        if queue.stream_id == 0:  # those of the engines do not wait
            plain(queue, event)

    monkeypatch.setattr(Queue, "wait_event", wait_event)
    races = trained(monkeypatch, ("host",), tmp_path).races
    assert any("copy_ on 1 reads what is still being computed on 0" in race for race in races)


def test_threads_copy_while_kernels_are_queued(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By address: the program's storages give up their bytes while these are copied."""
    trained(monkeypatch, ("host", "ssd"), tmp_path, transfers="overlapped")


def test_what_goes_to_a_drive_passes_in_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu_mover, "STAGED", 1000)
    trained(monkeypatch, ("ssd",), tmp_path)


def test_a_sweep_times_copies_on_the_streams_of_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patches, fake_gpu(patches) as gpu:
        for name, stand_in in (("NoModes", contextlib.nullcontext), ("_bytes_of", _bytes_of)):
            patches.setattr(gpu_mover, name, stand_in)
        patches.setattr(gpu_mover, "pinned", lambda nbytes: torch.empty(nbytes, dtype=torch.uint8))
        samples = swept_links(("host",), (1000, 4096), tmp_path, repeats=3)
    assert [(one.way, one.nbytes, len(one.times_ns)) for one in samples] == [
        (way, size, 3) for way in ("out", "in") for size in (1000, 4096)
    ]
    assert gpu.kernels.count("aten::copy_") == 2 * (1 + 2 * 4)
    assert gpu.races == []
