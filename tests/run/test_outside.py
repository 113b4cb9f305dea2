"""The peak that is printed is what an outside watcher sees of the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tensortide.run.core.build import library

TRAIN = """
import gc, sys, torch
from torch import nn
from tensortide.run.budget import Budget
from tests.run.outside import Pages

torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(0)
model = nn.Sequential(*[layer for _ in range(5) for layer in (
    nn.Conv2d(24, 24, 3, padding=1), nn.Conv2d(24, 24, 7, padding=3, groups=24), nn.Tanh()
)])
x = torch.randn(24, 24, 48, 48)

def step():
    y = model(x)
    (y + y.kthvalue(2, dim=0, keepdim=True).values).square().mean().backward()
    model.zero_grad()

pages = Pages()
step()
with Budget(1 << 60) as probe:
    there = probe.resident_bytes
    step()
own = probe.usage.peak_bytes - there
gc.collect()
for share in (0.6, 0.3):
    before = pages.reset()
    with Budget(there + int(own * share)) as budget:
        step()
        step()
    print(budget.usage.peak_bytes - there, pages.peak - before, budget.usage.recomputations)
"""


@pytest.mark.slow
@pytest.mark.skipif(library() is None, reason="nothing here can build the core")
@pytest.mark.parametrize("threads", [1, 2])
def test_resident_pages_are_what_is_printed(threads: int) -> None:
    paths = os.pathsep.join(["src", ".", os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", TRAIN, str(threads)]
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_WAIT_POLICY": "PASSIVE"}  # on a machine that has other work
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        printed, pages, recomputations = map(float, line.split())
        assert recomputations > 0
        assert pages == pytest.approx(printed, rel=0.05, abs=4 << 20)
