"""Ops that a budget cannot follow are refused in one line."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from torch import Tensor

import tensortide
from tensortide.errors import RunError
from tensortide.run.operators import refusal


def test_unknown_communication_is_refused() -> None:
    with torch.library._scoped_library("tensortide_tests", "FRAGMENT") as library:
        library.define("share(Tensor x, __torch__.torch.classes.c10d.ProcessGroup group) -> Tensor")
        reason = refusal(torch.ops.tensortide_tests.share.default)
    assert reason.startswith("tensortide_tests.share.default communicates: ")
    assert "outside of `with tensortide.budget(...)`" in reason
    assert "\n" not in reason


def test_memory_of_other_processes_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch.distributed._symmetric_memory  # it registers the op
    x = torch.ones(8)
    for _ in range(2):  # not only the first time
        with pytest.raises(RunError) as caught, tensortide.budget("1MiB"):
            torch.ops.symm_mem.one_shot_all_reduce(x, "sum", "0")
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith("symm_mem.one_shot_all_reduce.default communicates: ")


@pytest.mark.parametrize("inference", [False, True])
def test_other_threads_and_inference_mode_are_as_they_were(inference: bool) -> None:
    found: list[Tensor] = []

    def work() -> None:
        with torch.inference_mode(inference), tensortide.budget("1MiB"):
            found.append(torch.ones(64).mul_(3).add(1).sum())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    work()
    assert [float(value) for value in found] == [256.0, 256.0]
