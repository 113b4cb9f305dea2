"""Damaged traces: one error that names file and line, shows the text, and says what was expected."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tensortide.errors import TraceError
from tensortide.importers.g10.kernels import read_tensors
from tensortide.importers.g10.read import read_trace
from tensortide.importers.g10.results import (
    read_active,
    read_clock,
    read_liveness,
    read_memory_log,
    read_periods_log,
    read_profile,
)
from tests.importers.g10.example import INTERVALS, kernels_config, tensors_config, write_trace
from tests.importers.mutations import damaged
from tests.importers.refusal import refused_in_one_line

KERNELS = kernels_config()

CASES: dict[str, tuple[str, str]] = {
    "another id": (KERNELS.replace("Kernel ID: 1,", "Kernel ID: 2,"), "line 9: expected 'Kernel ID: 1, Name: <name>'"),
    "no name": (KERNELS.replace("ID: 0, Name: Some_Forward", "ID: 0"), "line 1: expected 'Kernel ID: 0, Name: <name>'"),
    "time": (KERNELS.replace("Time: 12000", "Time: 12.5"), "line 3: expected one 'Parent Layer ID:<n>; Name:<name>'"),
    "no time": (KERNELS.replace("Execution Time: 12000\n", ""), "line 1: this kernel has no 'Execution Time'"),
    "two times": (KERNELS.replace("Execution Time: 12000\n", "Execution Time: 1\n" * 2), "line 4: expected one"),
    "a tensor": (KERNELS.replace("Size in byte: 8", "Size in byte: x", 1), "line 5: expected 'tensor<id> Is weight"),
    "a range": (KERNELS.replace("Range:0--8", "Range:0--9", 1), "line 5: expected a range of 8 bytes"),
    "a flag": (KERNELS.replace("(global)?: 1", "(global)?: 2", 1), "line 5: expected 'tensor<id> Is weight"),
    "another size": (
        KERNELS.replace("Size in byte: 8, Range:0--8", "Size in byte: 9, Range:0--9", 1),
        "line 1: tensor0 of this kernel has 9 bytes, global 1, elsewhere 8 bytes, global 1",
    ),
    "unlisted": (KERNELS.replace("tensor4 Is", "tensor7 Is"), "line 26: tensor7 of this kernel is not in "),
    "twice": (
        KERNELS.replace("Output Tensors:\n", KERNELS.splitlines()[4] + "\nOutput Tensors:\n", 1),
        "line 6: expected each tensor once, and tensor0 is in the list already",
    ),
    "rule": (KERNELS.replace("_" * 68, "_" * 67, 1), "line 8: expected a tensor or a line of 68 underscores"),
    "no outputs": (KERNELS.replace("Output Tensors:\n", "", 1), "line 7: expected a tensor or 'Output Tensors:'"),
    "the end": (KERNELS[:-70], "line 43: expected a tensor or a line of 68 underscores: (the file ends here)"),
    "nothing": ("", "no kernel in this file"),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels(tmp_path: Path, name: str) -> None:
    text, said = CASES[name]
    write_trace(tmp_path)
    (tmp_path / "kernels.config").write_text(text)
    message = refused(read_trace, tmp_path)
    assert said in message
    assert str(tmp_path) in message


def refused(read: Callable[[Path], Any], path: Path) -> str:
    """What is said against a file: one line."""
    with pytest.raises(TraceError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("ends", ["9" * 5000 + "--8", "0--" + "9" * 5000])
def test_a_range_of_thousands_of_digits(tmp_path: Path, ends: str) -> None:
    write_trace(tmp_path)
    for name, text in (("tensors.config", tensors_config()), ("kernels.config", KERNELS)):
        said = refused_with(tmp_path, name, text.replace("Range:0--8", f"Range:{ends}", 1), read_trace)
        assert f"{name}, line " in said
        assert "expected 'tensor<id> Is weight" in said
        assert len(said) < 500


def test_other_files(tmp_path: Path) -> None:
    write_trace(tmp_path)
    assert "tensors.config, line 2: expected tensor1" in refused_with(
        tmp_path, "tensors.config", tensors_config().replace("tensor1", "tensor2"), read_trace
    )
    (tmp_path / "tensors.config").unlink()
    text = "".join(kernels_config().splitlines(keepends=True)[:8]).replace("tensor1", "tensor2")
    (tmp_path / "kernels.config").write_text(text)
    assert "no kernel uses tensor1, and there is no tensors.config" in refused(read_trace, tmp_path)
    assert "there is no kernels.config" in refused(read_trace, tmp_path / "nowhere")
    assert "cannot read" in refused(read_active, tmp_path / "nowhere")


def refused_with(folder: Path, name: str, text: str, read: Callable[[Path], Any]) -> str:
    (folder / name).write_text(text)
    return refused(read, folder)


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (
            read_liveness,
            INTERVALS.replace("Global!", "Liveness: Birth: 0, Death: 1."),
            "line 2: expected 'Global!'",
        ),
        (read_liveness, INTERVALS.replace("interval 0", "interval 1", 1), "line 6: expected 'interval 0: <start>-"),
        (read_liveness, INTERVALS.replace("Time:90", "Time:90us"), "line 7: expected 'Estimated Time:<us>'"),
        (read_liveness, INTERVALS.replace("_" * 60, "_" * 59, 1), "line 3: expected a rule of 60 characters"),
        (read_active, "Kernel 0: 1\nKernel 2: 1\n", "line 2: expected 'Kernel 1: <bytes>': 'Kernel 2: 1'"),
        (read_clock, "0\nnan\n", "line 2: expected a time in microseconds: 'nan'"),
        (read_profile, "0 1 ms\n1 1 B\n", "line 2: expected '1 <number> ms': '1 1 B'"),
        (read_profile, "0 1.5 B\n", "line 1: expected whole bytes"),
        (read_periods_log, "sd_size = [1]\nsd_time = [1, 2]\n# 1\n", "line 1: expected lists of one length"),
        (read_periods_log, "sd_size = [1]\n", "line 2: expected 'sd_time = <literal>': (the file ends here)"),
        (read_periods_log, "sd_size = [x]\n", "line 1: sd_size: no literal"),
        (read_periods_log, "sd_size = ['a']\n", "line 1: sd_size: Expected `int`, got `str`"),
        (read_memory_log, "import os\n", "line 1: expected '<name> = <literal>' with each of active, active_break"),
    ],
)
def test_what_is_said(tmp_path: Path, read: Callable[[Path], Any], text: str, said: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    message = refused(read, path)
    assert message.startswith(f"{path}")
    assert said in message


def test_nothing_in_a_log_is_executed(tmp_path: Path) -> None:
    path, victim = tmp_path / "log.py", tmp_path / "victim"
    path.write_text(f"sd_size = [open({str(victim)!r}, 'w')]\nsd_time = []\n")
    assert "line 1: sd_size: no literal" in refused(read_periods_log, path)
    assert not victim.exists()


def test_damaged_bytes(tmp_path: Path) -> None:
    path = tmp_path / "kernels.config"
    path.write_bytes(b"Kernel ID: 0, Name: x\n\xff\xfe\n")
    assert r"line 2: not UTF-8: '\\xff\\xfe'" in refused(read_trace, path)
    path.write_bytes(gzip.compress(b"Kernel" * 100)[:-9])
    assert "is damaged (gzip)" in refused(read_trace, path)


LOG = "active = [1,2,]\nactive_breakdown = [(0,1,0),(0,0,2),]\ntotal = [3,4,]\nglobal_weight = 1\ninput_size = 2\n"
LATER_TENSORS = (
    "tensor0, Name: a, Is global?: 1: Size in byte: 24, Dimensions: f32[2, 3]\n"
    "tensor1, Name: b, Is global?: 0: Size in byte: 8,\n"
)
PERIODS = "sd_size = [4, 8, ]\nsd_time = [1.5, 2e+06, ]\n# 1 2 "


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_trace, KERNELS),
        (read_tensors, tensors_config()),
        pytest.param(read_tensors, LATER_TENSORS, id="read_tensors-later"),
        (read_liveness, INTERVALS),
        (read_memory_log, LOG),
        (read_periods_log, PERIODS),
        (read_active, "Kernel 0: 1\nKernel 1: 2\n"),
        (read_clock, "0\n1.5\n2e+06\n"),
        (read_profile, "0000 0.5 ms\n0001 1.5 ms\n"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_damaged_file_is_refused_with_one_line_or_still_valid(read: Callable[[Path], Any], text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.config"
        path.write_text(text)
        read(path)

        @given(damaged(text))
        def check(changed: str) -> None:
            path.write_bytes(changed.encode(errors="replace"))
            with refused_in_one_line(str(path)):
                read(path)

        check()
