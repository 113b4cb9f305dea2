"""Differences between what a folder states and what is found, each told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide.errors import TraceError
from tensortide.importers.g10.compare import compare
from tensortide.importers.g10.export import write_liveness_files
from tensortide.importers.g10.read import read_trace
from tests.importers.g10.example import write_trace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The worked example with everything that a tool would have written beside it."""
    write_trace(tmp_path)
    write_liveness_files(read_trace(tmp_path), tmp_path / "out" / "run")
    for name in ("TensorPeriodLog.py", "NNMemConsumptionLog.py"):
        (tmp_path / f"out/run_{name}").rename(tmp_path / name)
    (tmp_path / "out/run/statistics/liveness_analysis.config").rename(tmp_path / "interval.config")
    (tmp_path / "kernel_time_table.config").write_text("0\n10\n30\n60\n100\n")
    (tmp_path / "real_mem.config").write_text("".join(f"Kernel {i}: {n}\n" for i, n in enumerate((12, 7, 2, 9, 11))))
    return tmp_path


def test_nothing_differs(folder: Path) -> None:
    found = compare(read_trace(folder), folder)
    assert found.differences == ()
    assert len(found.files) == 5
    assert compare(read_trace(folder), folder / "out").files == ()


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "interval.config",
            "Birth: 1, Death: 4",
            "Birth: 1, Death: 5",
            "tensor2 birth, death: (1, 4), and the file has",
        ),
        ("interval.config", "0: 2--------3", "0: 2--------4", "tensor1 periods: [(2, 3)], and the file has [(2, 4)]"),
        ("interval.config", "Time:90us", "Time:90.01us", "tensor0 period 0, us: 90.0, and the file has 90.01"),
        ("real_mem.config", "Kernel 2: 2", "Kernel 2: 3", "kernel 2: 2, and the file has 3"),
        ("kernel_time_table.config", "\n60\n", "\n61\n", "start of kernel 3, us: 60.0, and the file has 61.0"),
        ("NNMemConsumptionLog.py", "input_size = 8", "input_size = 9", "input_size: 8, and the file has 9"),
        ("NNMemConsumptionLog.py", "(4,8,0)", "(8,4,0)", "active_breakdown 0: (4, 8, 0), and the file has (8, 4, 0)"),
        ("TensorPeriodLog.py", "[8, 4, ]", "[8, 5, ]", "period 0 by size, bytes: 4, and the file has 5"),
    ],
)
def test_what_differs(folder: Path, name: str, old: str, new: str, said: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))
    (difference,) = compare(read_trace(folder), folder).differences
    assert difference.startswith(f"{name}: {said}")


def test_without_times(folder: Path) -> None:
    with pytest.raises(TraceError, match="the kernels have no times"):
        compare(read_trace(folder / "out/run/statistics"), folder)
