"""Machine code is kept by what it was compiled from, wherever that lies."""

from __future__ import annotations

import errno
import importlib.util
import os
import random
import time
from collections.abc import Callable
from enum import IntEnum
from itertools import cycle
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tensortide.compiled import IS_COMPILED, compiling_s
from tensortide.sealed import is_whole, seal
from tests.marks import some_slow

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled without Numba")

KERNEL = """
from tensortide.compiled import compiled, entry
from tests.marks import some_slow
from tests.plans.test_compiled import imported

SCALE = imported()


@compiled
def scaled(number):
    return SCALE * number


@entry
def twice(number):
    return 2 * scaled(number)
"""
SCALE = [3]


class Level(IntEnum):
    """What is compiled in and lies in another folder."""

    LOW = 0
    HIGH = 5


def imported() -> int:
    """A constant of another folder."""
    return SCALE[0]


def loaded(folder: Path, source: str = KERNEL) -> Any:
    """A module with ``source`` in ``folder``, alone in it."""
    folder.mkdir()
    path = folder / "kernel.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hits(function: Any) -> int:
    return sum(function.stats.cache_hits.values())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_another_clone_of_the_same_sources_compiles_nothing(tmp_path: Path) -> None:
    first = loaded(tmp_path / "first")
    assert (first.twice(5), hits(first.twice)) == (30, 0)
    second = loaded(tmp_path / "second")
    assert (second.twice(5), hits(second.twice)) == (30, 1)
    changed = loaded(tmp_path / "changed", KERNEL.replace("2 *", "4 *"))
    assert (changed.twice(5), hits(changed.twice)) == (60, 0)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "noise": lambda data: random.Random(0).randbytes(len(data)),
    "altered": lambda data: data[:-200] + bytes(100) + data[-100:],
    "without a digest": lambda data: data[: -len(seal(b""))],
}
DAMAGED_SLOWLY = {("empty", ".nbc"), ("zeros", ".nbi"), ("noise", ".nbc"), ("altered", ".nbi")}


@pytest.mark.parametrize(
    ("damage", "suffix"), some_slow([*zip(DAMAGES, cycle([".nbi", ".nbc"])), ("altered", ".nbc")], DAMAGED_SLOWLY)
)
def test_damaged_machine_code_is_compiled_again_and_never_loaded(
    damage: str, suffix: str, tmp_path: Path, cache: Path
) -> None:
    loaded(tmp_path / "first").twice(5)
    (path,) = cache.glob(f"tensortide/kernels-*/*{suffix}")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    second = loaded(tmp_path / "second")
    assert (second.twice(5), hits(second.twice)) == (30, 0)
    third = loaded(tmp_path / "third")
    assert (third.twice(5), hits(third.twice)) == (30, 1)
    assert all(map(is_whole, cache.glob("tensortide/kernels-*/*.nb?")))


def test_a_full_disk_costs_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        first = loaded(tmp_path / "first")
        assert first.twice(5) == 30
    second = loaded(tmp_path / "second")
    assert (second.twice(5), hits(second.twice)) == (30, 0)


def test_caches_of_other_functions_are_left_as_they_are(tmp_path: Path) -> None:
    loaded(tmp_path / "first")
    from numba.core import caching

    assert caching.IndexDataCacheFile.__module__ == "numba.core.caching"


def test_machine_code_that_is_used_is_marked_as_used(tmp_path: Path, cache: Path) -> None:
    loaded(tmp_path / "first").twice(5)
    (folder,) = cache.glob("tensortide/kernels-*")
    os.utime(folder, (0, 0))
    assert hits(loaded(tmp_path / "second").twice) == 0
    assert time.time() - folder.stat().st_mtime < 60


def test_a_constant_of_another_folder_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded(tmp_path / "first").twice(5) == 30
    monkeypatch.setattr("tests.plans.test_compiled.SCALE", [7])
    other = loaded(tmp_path / "second")
    assert (other.twice(5), hits(other.twice)) == (70, 0)


def test_members_of_an_enumeration_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = KERNEL.replace("imported()", "3").replace("SCALE * number", "number + (number == Level.HIGH)")
    source = source.replace("import imported\n", "import Level\n")
    first = loaded(tmp_path / "first", source)
    assert (first.twice(5), first.twice(6)) == (12, 12)
    monkeypatch.setattr("tests.plans.test_compiled.Level", IntEnum("Level", {"LOW": 0, "HIGH": 6}))
    assert [hits(first.twice), loaded(tmp_path / "second", source).twice(6)] == [0, 14]


def test_time_spent_compiling_is_counted(tmp_path: Path) -> None:
    before = compiling_s()
    loaded(tmp_path / "first").twice(5)
    cold = compiling_s()
    loaded(tmp_path / "second").twice(5)
    assert before < cold == compiling_s()


def test_called_by_python_a_part_runs_as_it_stands(tmp_path: Path) -> None:
    made = loaded(tmp_path / "first")
    assert type(made.scaled) is FunctionType
    assert made.scaled(5) == 15
    assert made.scaled("ab") == "ababab"


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path: Path, cache: Path) -> None:
    cache.write_text("no folder")
    assert loaded(tmp_path / "first").twice(5) == 30
