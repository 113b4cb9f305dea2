"""An op that runs again: what it is timed by, and what goes on around it."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tensortide import live
from tensortide.recorder import capture
from tensortide.run.budget import Budget
from tensortide.run.core.build import library
from tensortide.run.measure import compared
from tests.forked_script import forked
from tests.run.follow_steps import built, example
from tests.run.same import UNLIMITED, counting, identical
from tests.run.test_budget import KIB, chain, room

TICK_NS = 1000
"""Of the clock that counts: what anything takes that is timed by two looks at it."""


def test_it_is_timed_as_it_was_first() -> None:
    x = torch.randn(1024)
    with Budget(room(24 * KIB), clock=counting()) as budget:
        for tensor in chain(x, 20):
            tensor.cos()
    usage = budget.usage
    assert usage.recomputations > 0
    assert usage.base_ns == usage.ops * TICK_NS
    assert usage.recompute_ns == usage.recomputations * TICK_NS


def test_a_comparison_has_the_same_time_for_the_same_ops() -> None:
    step = built(example("unet"))
    graph = capture(step, real=True)
    with Budget(UNLIMITED) as free:
        before = free.resident_bytes
        step()
    limit = before + int((free.usage.peak_bytes - before) * 0.7)
    with Budget(limit, graph=graph, clock=counting()) as budget:
        for _ in range(2):
            step()
    both = compared(budget, budget.steps[-1:])
    assert both.measured.recomputations == both.predicted.recomputations > 0
    assert both.measured.recompute_ns == both.predicted.recompute_ns == both.measured.recomputations * TICK_NS


def test_between_ops_it_is_no_op_of_the_program() -> None:
    x = torch.randn(1024)
    with Budget(room(24 * KIB), clock=counting()) as budget:
        made = chain(x, 20)
        ops = budget.usage.ops
        live.decheckpoint(made[0])
        assert budget.usage.recomputations == 1
        assert budget.usage.ops == ops


def test_between_ops_autocast_does_not_change_it() -> None:
    weight = torch.randn(32, 32)
    want = weight @ weight
    with Budget(room(24 * KIB), clock=counting()):
        product = weight @ weight
        chain(weight, 20)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert live.decheckpoint(product) is product
    assert identical(product, want)


def test_tensors_begun_in_inference_mode_do_not_spoil_later_ones() -> None:
    x = torch.randn(1024, dtype=torch.float64)
    want = x.sin().cos()
    with Budget(room(48 * KIB), clock=counting()):
        with torch.inference_mode():
            made = chain(x, 20)
            made[0].cos()
        made = chain(x, 20)
        assert identical(made[0].cos(), want)


FAULTS = """
import resource, torch
from tensortide.run.budget import Budget
def fault(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        torch.ones(1 << 20).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
for compiled in COMPILED:
    with Budget("1GiB", compiled=compiled):
        fault(4)
        print(fault(8))
"""
PAGES = 8 * (4 << 20) // resource.getpagesize()
"""That eight ops return."""


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
def test_freed_memory_stays_for_the_next_op(tmp_path: Path) -> None:
    if any(name.startswith(("MALLOC_", "GLIBC_")) for name in os.environ):
        pytest.skip("the environment tells the C library otherwise")
    script = tmp_path / "faults.py"
    script.write_text(FAULTS.replace("COMPILED", "[False]"))
    assert int(forked(script).stdout) < PAGES // 4


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
def test_freed_memory_goes_where_the_environment_says_so() -> None:
    """But for own pages, which the compiled core has. A new interpreter: the C library reads its environment once."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    environment = {**others, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    compiled = (False, True) if library() is not None else (False,)
    code = FAULTS.replace("COMPILED", str(compiled))
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    for own, faults in zip(compiled, map(int, out.stdout.split()), strict=True):
        assert faults < PAGES // 4 if own else faults >= PAGES
