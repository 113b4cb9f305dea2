"""Captures in several threads: one after the other, and PyTorch is then as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import tensortide
from tensortide.recorder.surroundings import alone


def patched() -> tuple[object, ...]:
    """Parts of PyTorch that captures replace, and switches that they set."""
    cuda, classes = torch.cuda, (nn.LSTM.forward, torch.Tensor.backward, torch.optim.Optimizer.__init__)
    return cuda.is_available, cuda.is_available(), cuda.device_count(), *classes, torch.is_grad_enabled()


def model(layers: int) -> nn.Module:
    return nn.Sequential(*[nn.Linear(16, 16) for _ in range(layers)])


def test_four_threads_get_what_one_gets_and_leave_pytorch_as_it_was() -> None:
    before, layers = patched(), [1, 2, 3, 4, 1, 2, 3, 4]

    def peak(count: int) -> int:
        return tensortide.fits(model(count), torch.randn(4, 16), gpu="t4").peak_bytes

    expected = [peak(count) for count in layers[:4]] * 2
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(peak, layers)) == expected
    assert patched() == before


def test_a_model_of_several_threads_keeps_its_mode() -> None:
    shared, inputs = model(2).eval(), torch.randn(4, 16)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: tensortide.fits(shared, inputs, gpu="t4").answer, range(4)))
    assert answers == ["yes"] * 4
    assert not any(module.training for module in shared.modules())


def test_a_capture_waits_for_the_recording_of_another_thread() -> None:
    layer, batch, order = nn.Linear(4, 4), torch.randn(2, 4), []
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def capture() -> None:
        tensortide.capture(nn.Linear(4, 4), batch)
        order.append("captured")

    thread = threading.Thread(target=capture)
    with tensortide.record() as recording:
        thread.start()
        for _ in range(3):
            layer(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        tensortide.capture(nn.Linear(4, 4), batch)  # this thread need not wait
        order.append("recorded")
    thread.join(20)
    assert order == ["recorded", "captured"]
    assert len(recording.graph)


@pytest.mark.parametrize(("outer", "inner"), [(None, "t4"), ("t4", None), (None, None)])
def test_a_step_is_captured_while_another_is_built(outer: str | None, inner: str | None) -> None:
    graphs: list[tensortide.Graph] = []

    def workload() -> Any:
        graphs.append(tensortide.capture(nn.Linear(4, 4), torch.randn(2, 4), machine=inner))
        layer, batch = nn.Linear(8, 8), torch.randn(2, 8)
        return lambda: layer(batch).sum().backward()

    before = patched()
    with ThreadPoolExecutor(1) as pool:
        graphs.append(pool.submit(tensortide.capture, workload, machine=outer).result(20))
    assert all(map(len, graphs))
    assert patched() == before


INTERRUPTED = """
import os, signal, threading
import torch
import tensortide
from tensortide.recorder.surroundings import alone

has, done = threading.Event(), threading.Event()

def hold():
    with alone():
        has.set()
        done.wait(60)

thread = threading.Thread(target=hold)
thread.start()
has.wait(60)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    tensortide.capture(torch.nn.Linear(4, 4), torch.randn(2, 4))
except KeyboardInterrupt:
    print("interrupted", flush=True)
done.set()
thread.join()
print(len(tensortide.capture(torch.nn.Linear(4, 4), torch.randn(2, 4))) > 0)
"""


@pytest.mark.slow
def test_ctrl_c_ends_the_wait_for_another_thread() -> None:
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False, timeout=120)
    assert ran.stdout == "interrupted\nTrue\n", ran.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_does_not_wait_for_a_thread_that_it_has_not() -> None:
    has, done = threading.Event(), threading.Event()

    def hold() -> None:
        with alone():
            has.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    has.wait(20)
    child = os.fork()
    if child == 0:
        with alone():
            os._exit(7)
    done.set()
    thread.join()
    end = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(ended[1]) == 7
