"""CPU time of checks in pytest.

    python benchmarks/check_time.py [--write] [TEST ...]

A session of pytest whose tests are marked `tensortide`: each returns a training step (forward, backward, SGD with
momentum) of a ResNet-18 at 224 x 224 that no other test has, as its batch is another (aims: under 2 CPU s for the
first, with what it imports but PyTorch, and 0.3 s for each further one). Each session is a process of its own, of
which the best of three counts; *further* is the median of five tests. *Unused* is what the plug-in adds to a session
that checks nothing (aim: under 0.05 CPU s), the difference of the best of five sessions with and without it.
*Baseline* compares with an accepted one.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import harness

TESTS = {
    "limits": ('"no recomputation", peak="2GiB", flops="1 TFLOP"', False),
    "baseline": ('peak="baseline", flops="+1% of baseline"', True),
}
"""Arguments of the marker, and whether baselines are accepted in a session before."""
MODEL = """
import pytest
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer),
        )
        other = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))
        self.shortcut = nn.Identity() if stride == 1 else other

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))

def resnet18():
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [Block(64, 64, 1), Block(64, 64, 1)]
    for size in (64, 128, 256):
        blocks += [Block(size, 2 * size, 2), Block(2 * size, 2 * size, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))

@pytest.mark.tensortide(ASSERTIONS)
@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 6])
def test_step(batch):
    model = resnet18()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, target = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()

    return step
"""
PLUGIN = "tensortide.pytest_plugin"
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
COLUMNS = {"test": "{test}", "first, CPU s": "{first_s:.2f}", "further, CPU s": "{further_s:.3f}", "tests": "{tests:,}"}
UNUSED = {
    "session": "{session}",
    "without, CPU s": "{without_s:.3f}",
    "with, CPU s": "{with_s:.3f}",
    "adds, CPU s": "{adds_s:.3f}",
}


def checked(assertions: str, accept: bool) -> dict[str, Any]:
    """Measure each test of a session in this process, PyTorch imported before."""
    import pytest
    import torch  # noqa: F401

    spent: list[float] = []

    class Clock:
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_pyfunc_call(self) -> Any:
            began = time.process_time()
            result = yield
            spent.append(time.process_time() - began)
            return result

    with tempfile.TemporaryDirectory() as folder:
        test = Path(folder, "test_model.py")
        test.write_text(MODEL.replace("ASSERTIONS", assertions), "utf-8")
        options = [str(test), "-q", "--rootdir", folder, "-p", "no:cacheprovider", "-p", PLUGIN]
        if accept:
            command = [sys.executable, "-m", "pytest", *options, "--tensortide-accept"]
            subprocess.run(command, check=True, capture_output=True)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = pytest.main(options, plugins=[Clock()])
    if code:
        raise RuntimeError(out.getvalue())
    return {"first_s": spent[0], "further_s": statistics.median(spent[1:]), "tests": len(spent)}


def session(plugin: bool) -> float:
    """CPU seconds of a session in this process of one test that checks nothing."""
    began = time.process_time()
    import pytest

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        test = Path(folder, "test_nothing.py")
        test.write_text("def test_nothing(): pass\n", "utf-8")
        options = ["-p", PLUGIN] if plugin else []
        pytest.main([str(test), "-q", "--rootdir", folder, "-p", "no:cacheprovider", *options])
    return time.process_time() - began


def measure(run: harness.Run) -> None:
    table = run.table(COLUMNS, ("test",))
    rounds = 1 if run.smallest else 3
    for name, (assertions, accept) in run.cases(TESTS).items():
        rows = [run.child(checked, assertions, accept, **ALONE) for _ in range(rounds)]
        first, further = (min(row[key] for row in rows) for key in ("first_s", "further_s"))
        table.add({"test": name, "first_s": first, "further_s": further, "tests": rows[0]["tests"]})
    table = run.table(UNUSED, ("session",), "Installed and unused")
    pairs = [[run.child(session, plugin, **ALONE) for plugin in (False, True)] for _ in range(1 if run.smallest else 5)]
    without, with_ = (min(column) for column in zip(*pairs, strict=True))
    table.add({"session": "one empty test", "without_s": without, "with_s": with_, "adds_s": with_ - without})


if __name__ == "__main__":
    harness.main(__doc__, measure)
