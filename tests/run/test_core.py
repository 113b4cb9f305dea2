"""The compiled core of a budget decides as Python does, and leaves to Python what it does not know."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from tensortide.errors import BudgetInfeasible, CoreUnavailable
from tensortide.examples import find
from tensortide.run.budget import Budget
from tensortide.run.core import build
from tensortide.run.engine import LiveEngine
from tensortide.run.repeat import Best
from tensortide.run.runtime import Runtime
from tensortide.run.sizes import sizes_on
from tensortide.sealed import is_whole, seal
from tensortide.timelines.events import Kind
from tests.examples.tiny import TINY
from tests.forked_script import forked
from tests.marks import some_slow
from tests.run.programs import Program
from tests.run.same import UNLIMITED, counting, identical, state
from tests.run.training import Training

SEEDS = range(200 if os.environ.get("TENSORTIDE_LIVE") else 2)
EXAMPLES = ("gpt2", "unet")


@pytest.fixture(scope="module", autouse=True)
def core() -> Any:
    library = build.library()
    found = library.wait() if library is not None else None
    if found is None:
        pytest.skip("nothing here can build the core")
    return found


def played(build_step: Callable[[], Any], limit: int, compiled: bool, steps: int = 2) -> dict[str, Any]:
    """Everything that can be observed of ``steps`` steps under a budget of ``limit`` more than is there at first."""
    gc.collect()
    gc.disable()  # it would take away garbage at other times
    torch.manual_seed(0)
    step = build_step()
    step()
    gc.collect()
    if limit < UNLIMITED:
        with Budget(UNLIMITED) as probe:
            limit += probe.resident_bytes
    budget = Budget(limit, clock=counting(), compiled=compiled)
    events: list[tuple[int, int, int]] = []
    results, failures, left = [], [], []
    with budget:
        assert budget.runtime is not None
        engine = budget.runtime.engine
        before = engine.memory
        engine.listeners.append(lambda kind, index: events.append((engine.clock_ns, kind, _bytes(engine, kind, index))))
        for _ in range(steps):
            try:
                results.append(step())
            except BudgetInfeasible as error:
                failures.append(str(error).split(" and ")[0])
            engine.collect()  # of what was dropped after the last op
            left.append(engine.memory - before)
    gc.enable()
    usage = budget.usage
    counted = {name: getattr(usage, name) for name in ("ops", "evictions", "recomputations", "base_ns")}
    tensors = [*[r.detach().clone() for r in results if isinstance(r, torch.Tensor)], *state(step)]
    peak = usage.peak_bytes - before
    counted |= {"events": sorted(events), "failures": failures, "left": left}  # at the same time in any order
    return {"tensors": tensors, "generator": torch.get_rng_state(), "peak": peak, **counted}


def _bytes(engine: LiveEngine, kind: int, index: int) -> int:
    return engine.storage_bytes[engine.storage[index] if kind == Kind.RECOMPUTE else index]


def assert_alike(build_step: Callable[[], Any], share: float) -> None:
    sizes_on.cache_clear()  # what other programs have shown is not that of a first call
    played(build_step, UNLIMITED, compiled=False)  # sizes are known from now on
    whole = played(build_step, UNLIMITED, compiled=False)
    limit = int(whole["peak"] * share)
    for one, most in ((whole, UNLIMITED), (played(build_step, limit, compiled=False), limit)):
        other = played(build_step, most, compiled=True)
        for name in one:
            if name == "tensors":
                assert all(map(identical, one[name], other[name]))
            elif name == "generator":
                assert torch.equal(one[name], other[name])
            else:
                assert one[name] == other[name], (name, most)


@pytest.mark.parametrize("name", some_slow(EXAMPLES, ["unet"]))
def test_examples_are_played_alike(name: str) -> None:
    workload = find(name).load()
    assert_alike(lambda: workload(**TINY[name]), 0.85)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("seed", some_slow(SEEDS, {0}))
def test_random_loops_are_played_alike(seed: int) -> None:
    assert_alike(lambda: Training(seed), 0.9)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_are_played_alike(seed: int) -> None:
    try:
        Program(seed).step()
    except RuntimeError:
        pytest.skip("no program without a budget either")
    assert_alike(lambda: Program(seed).step, 0.9)


@pytest.mark.parametrize("policy", ["dtr-eq", "eq-size", "eq", "dtr-local", "local-stale", "size"])
def test_what_is_evicted_next_is_found_alike(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload, found = find("gpt2").load(), []

    def both(engine: LiveEngine) -> int:
        assert engine.search is not None
        found.append((engine.search(), engine.policy.choose(list(engine.pool), engine)[0]))
        return found[-1][0]

    monkeypatch.setattr(LiveEngine, "decide", both)
    monkeypatch.setattr(Best, "due", lambda best: False)
    limit = int(0.7 * played(lambda: workload(**TINY["gpt2"]), UNLIMITED, compiled=True)["peak"])
    step = workload(**TINY["gpt2"])
    step()
    with Budget(UNLIMITED) as probe:
        limit += probe.resident_bytes
    with Budget(limit, policy), contextlib.suppress(BudgetInfeasible):  # some thrash
        step()
        step()
    assert len(found) >= 8
    assert all(core == python for core, python in found)


def test_a_build_that_fails_is_said_once(tmp_path: Path) -> None:
    library = build.Library(tmp_path, "/bin/false", ())
    with pytest.warns(CoreUnavailable, match=r"/bin/false failed, see .*\.log"):
        assert library.wait() is None
    assert library.module() is None
    assert not library.path.exists()


COMPILER = """#!/bin/sh
echo started >> "$(dirname "$0")/log"
while [ ! -e "$(dirname "$0")/go" ]; do sleep 0.05; done
while [ "$1" != -o ]; do shift; done
echo half > "$2"
"""


def test_a_compiler_outlives_the_program_that_started_it(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    program = tmp_path / "program.py"
    program.write_text(f"""
import pathlib, time
from tensortide.run.core.build import Library
library = Library(pathlib.Path({str(tmp_path)!r}), {str(compiler)!r}, ())
assert library.module() is None
while not pathlib.Path({str(tmp_path / "log")!r}).exists():
    time.sleep(0.05)
time.sleep(0.2)
""")
    for _ in range(2):
        assert forked(program).returncode == 0
    path = build.Library(tmp_path, str(compiler), ()).path
    assert not path.exists()
    (tmp_path / "go").touch()
    for _ in range(1200):
        if path.exists():
            break
        time.sleep(0.05)
    assert path.read_bytes() == seal(b"half\n")
    assert (tmp_path / "log").read_text() == "started\n"


def test_what_is_no_library_is_not_used(tmp_path: Path) -> None:
    library = build.Library(tmp_path, "/bin/false", ())
    library.path.write_bytes(seal(b"half"))
    os.utime(library.path, (0, 0))
    with pytest.warns(CoreUnavailable):
        assert library.module() is None
    assert library.path.stat().st_mtime > 0, "it is marked as used before it is loaded"


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "a page short": lambda data: data[:-4096],
    "a byte short": lambda data: data[:-1],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "a page of zeros": lambda data: data[:8192] + bytes(4096) + data[12288:],
    "noise": lambda data: random.Random(0).randbytes(len(data)),
    "without a digest": lambda data: data[: -len(seal(b""))],
    "of another content": lambda data: seal(b"")[:-1] + data,
}
COPYING = """#!/bin/sh
echo started >> "$(dirname "$0")/log"
sleep 0.1
while [ "$1" != -o ]; do shift; done
cp "$(dirname "$0")/good" "$2"
"""
LOADING = """
import pathlib
from tensortide.run.core.build import Library
assert Library(pathlib.Path({folder!r}), {compiler!r}, ()).wait() is not None
"""


def copying(folder: Path, core: Any) -> tuple[build.Library, Path]:
    """A library whose compiler copies the core, and a program that loads it."""
    compiler, program = folder / "compiler", folder / "program.py"
    compiler.write_text(COPYING)
    compiler.chmod(0o755)
    (folder / "good").write_bytes(Path(core.__file__).read_bytes())
    program.write_text(LOADING.format(folder=str(folder), compiler=str(compiler)))
    return build.Library(folder, str(compiler), ()), program


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damaged_core_is_whole(damage: str, tmp_path: Path, core: Any) -> None:
    (tmp_path / "core").write_bytes(DAMAGES[damage](Path(core.__file__).read_bytes()))
    assert not is_whole(tmp_path / "core")


@pytest.mark.parametrize("damage", some_slow(DAMAGES, DAMAGES.keys() - {"truncated", "of another content"}))
def test_a_damaged_core_is_built_again_and_never_loaded(damage: str, tmp_path: Path, core: Any) -> None:
    library, program = copying(tmp_path, core)
    library.path.write_bytes(DAMAGES[damage](Path(core.__file__).read_bytes()))
    for _ in range(2):
        assert forked(program).returncode == 0
        assert (tmp_path / "log").read_text() == "started\n"
    assert is_whole(library.path)


@pytest.mark.slow
def test_processes_that_find_a_damaged_core_at_once_build_it_once(tmp_path: Path, core: Any) -> None:
    library, program = copying(tmp_path, core)
    library.path.write_bytes(b"half")
    with ThreadPoolExecutor() as pool:
        done = [*pool.map(lambda _: subprocess.run([sys.executable, program], timeout=300, check=False), range(3))]
    assert [each.returncode for each in done] == [0] * 3
    assert (tmp_path / "log").read_text() == "started\n"


FAILING_AT_FIRST = """while [ "$1" != -o ]; do shift; done
if ! [ -e "$(dirname "$0")/failed" ]; then touch "$(dirname "$0")/failed"; mkdir "$2"; exit; fi
rmdir "$2"
set -- -o "$2"
"""


def test_a_core_that_cannot_be_sealed_is_said_and_tried_again(
    tmp_path: Path, core: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "COPYING", COPYING.replace("sleep 0.1\n", FAILING_AT_FIRST))
    library, program = copying(tmp_path, core)
    with pytest.warns(CoreUnavailable, match=r"could not be written, see .*\.new\.log"):
        assert library.wait() is None
    assert not library.path.exists()
    assert forked(program).returncode == 0
    assert is_whole(library.path)


def test_ordinary_ops_never_reach_python(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    original = Runtime.__torch_dispatch__

    def handle(runtime: Runtime, func: Any, *arguments: Any) -> Any:
        seen.append(str(func))
        return original(runtime, func, *arguments)

    monkeypatch.setattr(Runtime, "__torch_dispatch__", handle)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.GELU())
    update = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(torch.ones(4, 8).mul(2)).square().mean().backward()
        update.step()
        update.zero_grad()

    with Budget(UNLIMITED):
        step()
        step()
        seen.clear()
        step()
    ordinary = ("addmm.default", "t.default", "mm.default", "gelu_backward.default", "lerp_.Scalar", "addcdiv_.default")
    assert not {f"aten.{name}" for name in ordinary} & set(seen)


def test_ops_that_room_is_made_for_run_in_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    original = Runtime._run

    def run(runtime: Runtime, operator: Any, *arguments: Any) -> Any:
        seen.append(str(operator.func))
        return original(runtime, operator, *arguments)

    def step() -> torch.Tensor:
        x = torch.linspace(0, 1, 4096)
        xs = [x := x.sin() for _ in range(12)]
        ys = torch._foreach_mul(xs, 2.0)
        torch._foreach_add_(ys, 1.0)
        del xs
        return torch.stack([y * y for y in ys]).sum() + torch.stack(ys).sum()

    expected = step()
    monkeypatch.setattr(Runtime, "_run", run)
    with Budget(UNLIMITED) as probe:
        limit = probe.resident_bytes + 27 * 4 * 4096
    with Budget(limit) as memory:
        step()
        step()
        seen.clear()
        found = step()
    assert identical(found, expected)
    assert memory.usage.evictions > 0
    assert memory.usage.recomputations > 0
    assert set(seen) <= {"aten.linspace.default"}


def test_storages_over_the_same_memory_are_forgotten_with_the_program(core: Any) -> None:
    with Budget(UNLIMITED) as memory:
        assert memory.runtime is not None
        x = torch.ones(64) * 2
        array = x.numpy()
        for _ in range(5):
            other = torch.from_numpy(array)
            other.add_(1)
            del other
        assert memory.runtime.storages.value(x).block.aliases is None
    assert x.eq(7).all()


def test_the_dispatcher_is_left_as_it_was() -> None:
    def keys() -> tuple[Any, Any, int]:
        include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
        return include, exclude, torch._C._len_torch_dispatch_stack()

    before = keys()
    with pytest.raises(KeyError), Budget(UNLIMITED):  # noqa: PT012
        torch.ones(3).mul(2)
        raise KeyError
    assert keys() == before
