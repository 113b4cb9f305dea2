"""What ``auto`` is of: the tightest limit that the process is under."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensortide
from tensortide import live
from tensortide.errors import RunError
from tensortide.run import device
from tensortide.run.budget import Budget
from tensortide.run.host_memory import _control_groups
from tests.forked_script import forked

GIB = 1 << 30
ASKS = """
import re, resource, sys
from pathlib import Path
from tensortide.run.budget import Budget

kind, field, more = sys.argv[1], sys.argv[2], int(sys.argv[3])
used = int(re.search(rf"{field}:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
resource.setrlimit(getattr(resource, kind), (used + more,) * 2)
print(used + more, Budget("auto", device="cpu").budget_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")
@pytest.mark.parametrize(("kind", "field"), [("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData")])
def test_limits_of_the_process_are_respected(kind: str, field: str, tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(ASKS)
    done = forked(script, kind, field, str(GIB))
    assert done.returncode == 0, done.stderr
    _, auto = map(int, done.stdout.split())
    assert 0.8 * GIB < auto < 0.91 * GIB  # of what is left


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


def test_auto_counts_what_tensors_have_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "host_memory", lambda: (GIB, 4 * GIB))
    given = [torch.ones(1 << 20) for _ in range(4)]
    with Budget("auto", device="cpu") as budget:
        assert budget.resident_bytes >= sum(t.nbytes for t in given)
        assert budget.budget_bytes == budget.resident_bytes + int(0.9 * GIB)
        more = torch.ones(1 << 20)
        live.set_memory_budget("auto")
        assert budget.budget_bytes == budget.resident_bytes + int(0.9 * GIB)
        with pytest.raises(RunError, match="of the peak of a step"):
            live.set_memory_budget("50%")
    assert more.nbytes == given[0].nbytes


NO_LIMITS = [1e9, float("nan"), None, b"8GiB", 0, -1, True, 10**400, "1e400", "-1GiB", "60 percent"]


@pytest.mark.parametrize("limit", NO_LIMITS, ids=lambda limit: repr(limit)[:12])
def test_what_is_no_limit_is_refused_in_one_line(limit: Any) -> None:
    with pytest.raises(RunError, match="budget") as caught:
        tensortide.budget(limit)
    assert "\n" not in str(caught.value)


def test_a_limit_may_be_any_whole_number() -> None:
    given: Any = np.int64(1 << 30)
    assert tensortide.budget(given).budget_bytes == 1 << 30
