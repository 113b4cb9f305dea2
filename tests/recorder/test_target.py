"""Hyperparameters as texts: what a workload could take is passed on, what no workload can is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import WorkloadError
from tensortide.recorder.target import find_workload, parse_settings


def workload(
    given: Any,
    batch: int = 8,
    n_heads: int = 2,
    layers: int = 3,
    workers: int = 4,
    axis: int = 1,
    last: int = -1,
    padding_idx: int = 0,
    seq_len: Any = None,
    rate: float = 0.5,
    sizes: tuple[int, ...] = (1, 2),
    name: str = "adam",
) -> None:
    """Take hyperparameters of every type."""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("batch=1_000", 1000),
        ("batch=1e3", 1000),
        ("layers=0", 0),
        ("workers=0", 0),
        ("axis=-1", -1),
        ("last=-2", -2),
        ("padding_idx=-1", -1),
        ("rate=-1", -1.0),
        ("sizes=[3]", [3]),
        ("seq_len=none", None),
        ("name=", ""),
        ("name=0", "0"),
    ],
)
def test_what_a_workload_could_take_is_passed_on(text: str, value: object) -> None:
    assert parse_settings([text], workload, "w") == {text.partition("=")[0]: value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch=0", "from 1 up"),
        ("n_heads=0", "from 1 up"),
        ("seq_len=-4", "from 1 up, not -4"),
        ("layers=-1", "from 0 up"),
        ("workers=-1", "from 0 up"),
        ("axis=9223372036854775808", "below 2"),
        ("batch=true", "takes int"),
        ("rate=nan", "takes float"),
        ("sizes=3", "takes tuple"),
        ("given=", "needs a value"),
        ("seq_len=", "needs a value"),
    ],
)
def test_what_no_workload_can_take_is_refused(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse_settings([text], workload, "w")


@pytest.mark.parametrize("place", ["train.py", "train", "package.train"])
def test_a_misspelt_name_is_answered_without_running_the_file(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "def workload(): ...\nraise SystemExit(3)\n"
    (tmp_path / "package").mkdir()
    for path in (tmp_path / "train.py", tmp_path / "package" / "train.py"):
        path.write_text(text)
    with pytest.raises(WorkloadError, match=rf"{place} has no 'worklaod'; did you mean workload\?"):
        find_workload(f"{place}:worklaod")
    with pytest.raises(WorkloadError, match="ended the program"):
        find_workload("train.py:workload")
    (tmp_path / "train.py").write_text("globals()['made'] = lambda: None\n")
    assert find_workload("train.py:made") is not None
