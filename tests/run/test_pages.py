"""Memory of tensors from pages of the budget's own: blocks stay whole, whoever frees them and whenever, and as many
pages are resident as tensors had at once."""

from __future__ import annotations

import gc
import itertools
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tensortide.run import allocations
from tensortide.run.budget import Budget
from tensortide.run.core.build import library
from tests.run.outside import Pages
from tests.run.same import UNLIMITED

KIB, MIB = 1 << 10, 1 << 20
PAGE, SMALL = 4 * KIB, 64 * KIB
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def core() -> Any:
    found = library()
    module = found.wait() if found is not None else None
    if module is None:
        pytest.skip("nothing here can build the core")
    return module


@contextmanager
def own_pages(core: Any) -> Iterator[None]:
    core.own_pages(True)
    try:
        yield
    finally:
        core.own_pages(False)


def bytes_of(nbytes: int) -> int:
    """Bytes of the pages that a tensor of ``nbytes`` takes."""
    return (nbytes + PAGE - 1) // PAGE * PAGE if nbytes >= SMALL else 0


def block(nbytes: int, mark: int = 1) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8).fill_(mark)


class Holder(threading.Thread):
    """Makes and drops tensors at random; ``wrong``: those whose contents have changed."""

    def __init__(self, mark: int) -> None:
        super().__init__()
        self.mark, self.held, self.wrong = mark, [block(SMALL, mark)], 0

    def run(self) -> None:
        draw = random.Random(self.mark)
        for _ in range(200):
            if len(self.held) > 12 or draw.random() < 0.4:
                tensor = self.held.pop(draw.randrange(len(self.held))) if self.held else block(1, self.mark)
                self.wrong += not bool((tensor == self.mark).all())
            else:
                size = draw.choice((draw.randrange(1, SMALL), draw.randrange(SMALL, 2 * MIB), 256 * KIB))
                self.held.append(block(size, self.mark))


def test_threads_hold_what_they_wrote(core: Any) -> None:
    with own_pages(core):
        threads = [Holder(mark) for mark in (1, 2, 3)]
        before = core.own_pages(None)[0] - 3 * SMALL
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        held = [(tensor, thread.mark) for thread in threads for tensor in thread.held]
        spans = sorted((tensor.data_ptr(), tensor.nbytes) for tensor, _ in held)
        in_use, mapped, most, _ = core.own_pages(None)
        assert not any(thread.wrong for thread in threads)
        assert all(bool((tensor == mark).all()) for tensor, mark in held)
        assert all(at + size <= after for (at, size), (after, _) in itertools.pairwise(spans))
        assert all(at % 64 == 0 for at, _ in spans)
        assert in_use - before == sum(bytes_of(tensor.nbytes) for tensor, _ in held)
        assert in_use <= mapped <= most
    assert core.own_pages(None)[1] == in_use  # of free pages none are left


def test_free_pages_serve_blocks_of_any_size(core: Any) -> None:
    gc.collect()
    pages = Pages()
    with own_pages(core):
        before = pages.reset()
        small = [block(MIB - PAGE * (place % 3), 7) for place in range(64)]
        kept = small[::2]
        del small
        large = [block(5 * MIB, mark) for mark in range(5)]
        assert all(bool((tensor == 7).all()) for tensor in kept)
        assert all(bool((tensor == mark).all()) for mark, tensor in enumerate(large))
        assert pages.peak - before < 66 * MIB
        assert core.own_pages(None)[1] <= core.own_pages(None)[2]


def test_mappings_stay_few(core: Any) -> None:
    draw = random.Random(0)
    with own_pages(core):
        held = [block(SMALL)]
        for _ in range(3000):
            while sum(tensor.nbytes for tensor in held) > 16 * MIB:
                held.pop(draw.randrange(len(held)))
            held.append(torch.empty(draw.randrange(SMALL, 2 * MIB), dtype=torch.uint8))
        assert core.own_pages(None)[3] < 4 * 18 * MIB // SMALL


@pytest.mark.parametrize("make", [block, lambda n: torch.ones(n // 4, dtype=torch.float32).to_mkldnn()])
def test_blocks_are_freed_after_and_before(core: Any, make: Any) -> None:
    early = make(MIB)
    with own_pages(core):
        late = make(MIB)
        in_use = core.own_pages(None)[0]
        assert in_use >= MIB
        del early
        assert core.own_pages(None)[0] == in_use
    want = make(MIB)
    assert torch.equal(*(tensor.to_dense() if tensor.is_mkldnn else tensor for tensor in (late, want)))
    del late
    assert core.own_pages(None)[:2] == (in_use - MIB, in_use - MIB)


def test_a_storage_grows_by_the_allocator_that_it_has(core: Any) -> None:
    early = block(MIB, 3)
    with own_pages(core):
        early.untyped_storage().resize_(3 * MIB)
        late = block(MIB, 5)
        late.untyped_storage().resize_(2 * MIB)
        assert bool((early == 3).all())
        assert bool((late == 5).all())
    late.untyped_storage().resize_(4 * MIB)
    assert bool((late == 5).all())


def test_profilers_see_the_blocks(core: Any) -> None:
    with own_pages(core):
        assert allocations.start()
        first = torch.empty(MIB, dtype=torch.uint8)
        del first
        kept = torch.empty(3 * MIB, dtype=torch.uint8)
        assert allocations.stop(CPU, [kept.untyped_storage()]) == 3 * MIB


def test_a_budget_takes_them_and_gives_them_back(core: Any) -> None:
    gc.collect()
    x = torch.randn(512, 512)
    with Budget(UNLIMITED):
        before = core.own_pages(None)[0]
        y = x.sin()
        assert core.own_pages(None)[0] - before == MIB
        in_use = core.own_pages(None)[0]
    z = x.cos()
    assert core.own_pages(None)[:2] == (in_use, in_use)
    assert torch.equal(y, x.sin())
    del y, z
    assert core.own_pages(None)[1] == in_use - MIB


def test_forked_processes_have_their_own(core: Any) -> None:
    stop = threading.Event()

    def busy() -> None:
        while not stop.wait(1e-4):
            for _ in range(20):
                block(MIB)

    other = threading.Thread(target=busy)
    with own_pages(core):
        other.start()
        try:
            kept = block(MIB, 9)
            for _ in range(2):
                child = os.fork()
                if not child:
                    held = [block(MIB, 1), block(3 * MIB, 2)]
                    right = bool((kept == 9).all()) and bool((held[1] == 2).all())
                    kept.fill_(8)
                    core.own_pages(False)
                    del held
                    os._exit(0 if right and bool((block(MIB, 4) == 4).all()) else 1)
                assert os.waitpid(child, 0)[1] == 0
            assert bool((kept == 9).all())
        finally:
            stop.set()
            other.join()


OUT_OF_MEMORY = """
import re, resource, torch
from tensortide.run.core.build import library
core = library().wait()
core.own_pages(True)
MIB = 1 << 20
used = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
held = []
try:
    while True:
        held.append(torch.ones(2 * MIB, dtype=torch.uint8))
except RuntimeError as error:
    # The last memory may be asked for by an allocation of another library.
    assert "DefaultCPUAllocator: can't allocate memory" in str(error) or str(error) == "std::bad_alloc", error
assert len(held) > 50
del held[::2]
large = [torch.ones(7 * MIB, dtype=torch.uint8) for _ in range(len(held) // 5)]
assert all(bool((tensor == 1).all()) for tensor in held + large)
"""


@pytest.mark.slow
def test_memory_that_runs_out_is_the_usual_error() -> None:
    command = [sys.executable, "-c", OUT_OF_MEMORY]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
