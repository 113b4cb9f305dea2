"""The peak that is printed is what an outside watcher sees of the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.run.outside import watching

TRAIN = """
import gc, sys, torch
from torch import nn
from tensortide.run.budget import Budget
from tests.run.outside import Heap

torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(0)
model = nn.Sequential(*[layer for _ in range(8) for layer in (
    nn.Conv2d(24, 24, 3, padding=1), nn.Conv2d(24, 24, 7, padding=3, groups=24), nn.Tanh()
)])
x = torch.randn(8, 24, 48, 48)

def step():
    y = model(x)
    (y + y.kthvalue(2, dim=0, keepdim=True).values).square().mean().backward()
    model.zero_grad()

heap = Heap()
step()
gc.collect()
before = heap.reset()
step()
own = heap.peak - before
gc.collect()
with Budget(1 << 60) as probe:
    there = probe.resident_bytes
    step()  # modules of PyTorch that its first use imports
for share in (0.8, 0.5):
    before = heap.reset()
    with Budget(there + int(own * share)) as budget:
        step()
        step()
    print(own * share, budget.usage.peak_bytes - there, heap.peak - before, budget.usage.recomputations)
"""


@pytest.mark.slow
@pytest.mark.skipif(not watching(), reason="it takes Linux and a C compiler")
@pytest.mark.parametrize("threads", [1, 2])
def test_the_heap_is_what_is_printed(threads: int) -> None:
    paths = os.pathsep.join(["src", ".", os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **watching(), "PYTHONPATH": paths}
    command = [sys.executable, "-c", TRAIN, str(threads)]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        limit, printed, heap, recomputations = map(float, line.split())
        assert recomputations > 0
        assert heap == pytest.approx(printed, rel=0.05)
        assert heap <= limit * 1.1
