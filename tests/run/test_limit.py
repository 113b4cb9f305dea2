"""What ``auto`` and shares are of: the tightest limit that the process is under."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tensortide.run.limit import _control_groups

GIB = 1 << 30
ASKS = """
import resource, sys
resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]),) * 2)
from tensortide.run.budget import Budget
print(Budget("auto", device="cpu").budget_bytes, Budget("50%", device="cpu").budget_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")
@pytest.mark.parametrize(("limit", "nbytes"), [("RLIMIT_AS", 6 * GIB), ("RLIMIT_DATA", 3 * GIB)])
def test_limits_of_the_process_are_respected(limit: str, nbytes: int) -> None:
    command = [sys.executable, "-c", ASKS, limit, str(nbytes)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    auto, half = map(int, out.split())
    assert 0 < auto < 0.9 * nbytes
    assert half <= nbytes / 2


def test_limits_of_control_groups_are_found(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("70\n")
    (tmp_path / "outer" / "memory.max").write_text("1000\n")
    (tmp_path / "outer" / "memory.current").write_text("300\n")
    first = tmp_path / "memory" / "job"
    first.mkdir(parents=True)
    (first / "memory.limit_in_bytes").write_text("500\n")
    (first / "memory.usage_in_bytes").write_text("100\n")
    own = tmp_path / "own"
    own.write_text("9:name=systemd:/\n4:memory:/job\n0::/outer/inner\n")
    assert sorted(_control_groups(tmp_path, own)) == [(500, 100), (1000, 300)]
    assert list(_control_groups(tmp_path, tmp_path / "none")) == []
