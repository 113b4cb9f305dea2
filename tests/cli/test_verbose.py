"""``--verbose``: what is tried, assumed and skipped, as lines on standard error, of any verb."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tensortide.cli import console
from tensortide.cli.app import VERBS, application
from tensortide.progress import detail
from tests.cli.command import called
from tests.conftest import ROOT

GRAPH = ROOT / "tests" / "data" / "catamount" / "graphs" / "simple_example.meta.gz"
HEADS = """
import torch

def step(batch: int = 4, hidden: int = 24, heads: int = 4):
    x = torch.randn(batch, hidden, requires_grad=True)
    return lambda: x.view(batch, heads, hidden // heads).sum().backward()
"""


def test_assumptions_and_values_of_a_file_are_named(tmp_path: Path) -> None:
    plain = called(tmp_path, "count", str(GRAPH), "--set", "b=8")
    asked = called(tmp_path, "count", str(GRAPH), "--set", "b=8", "--verbose")
    assert (asked.stdout, plain.stderr) == (plain.stdout, "")
    assert "assumed: the size 128 is taken to be 2 times the size 64\n" in asked.stderr
    assert "assumed: h=64, which is the file's own: --set gives another\n" in asked.stderr
    assert "b=" not in asked.stderr


def test_settings_that_are_tried_and_skipped_are_named(tmp_path: Path) -> None:
    (tmp_path / "heads.py").write_text(HEADS)
    done = called(tmp_path, "count", "heads.py:step", "--symbols", "hidden,heads", "--verbose")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    tried = [line for line in lines if "s: capturing at " in line]
    skipped = [line for line in lines if line.startswith("skipped: hidden=")]
    assert len(tried) > 5
    assert skipped
    assert len(skipped) == len(set(skipped)) < len(tried)
    assert all(line.partition(": ")[2].partition(":")[0] in "\n".join(tried) for line in skipped)


def test_it_goes_with_every_verb_and_not_with_quiet(tmp_path: Path) -> None:
    done = called(tmp_path, "count", str(GRAPH), "--verbose", "-q")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--quiet and --verbose exclude each other" in done.stderr
    names = [name for verbs in VERBS.values() for name in verbs]
    for name in names:
        verb = application([name])[name]
        commands = [verb.default_command, *(app.default_command for app in verb.subapps)]
        options = [set(getattr(one, "__annotations__", {})) for one in commands if one is not None]
        assert any("quiet" in one for one in options), name
        assert all("verbose" in one for one in options if "quiet" in one), name


def test_details_are_silent_until_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("tensortide")
    with console.told():
        detail("assumed", "nothing")
        level = log.level
        with console.detailed(True):
            for _ in range(2):
                detail("skipped", "a\x1b[2Jb\nerror: all is well")
            with console.progress(quiet=False) as say:
                for message in ("one", "one", "two"):
                    say(message)
        assert log.level == level
        detail("assumed", "nothing")
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "nothing" not in err
    assert [line.partition("s: ")[2] for line in err.splitlines()[-2:]] == ["one", "two"]
    assert err.count("skipped: ") == 1
