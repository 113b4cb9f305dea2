"""Ctrl-C ends the program even where Python drops the exception that it raises."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tensortide.cli import main
from tensortide.cli.interrupt import counted, end_requests, heard, postponed
from tensortide.placements.search.session import Session

PROGRAM = """
import os, signal, sys, time, weakref
from tensortide.cli.interrupt import heard

class Thing: pass

def dropped(reference):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000): pass

try:
    with {context}:
        thing = Thing()
        watch = weakref.ref(thing, dropped)
        del thing
        time.sleep({seconds})
except KeyboardInterrupt:
    sys.exit(130)
sys.exit(0 if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL else 1)
"""


def run(context: str, seconds: float) -> int:
    program = PROGRAM.format(context=context, seconds=seconds)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False).returncode


def test_an_interrupt_in_a_callback_is_heard() -> None:
    assert run("heard()", 20) == 130


def test_without_it_the_interrupt_is_lost() -> None:
    assert run("__import__('contextlib').nullcontext()", 0.3) == 0


def test_an_interrupt_that_is_being_handled_is_not_raised_again() -> None:
    """What cleans up takes its time, and what comes after it is not interrupted if the interrupt is put off."""
    cleaned = []
    before = signal.getsignal(signal.SIGINT)
    with heard(), postponed() as found:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            time.sleep(0.35)
            cleaned.append(True)
    assert (cleaned, [error.args for error in found]) == ([True], [(signal.SIGINT,)])
    with heard():
        with postponed() as found:
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.25)
    assert len(found) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_handlers_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)
    with heard():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)) == before


@pytest.mark.parametrize(
    ("arguments", "status"), [((), 130), (("stopped by a library",), 130), ((signal.SIGTERM,), 143)]
)
def test_an_interrupt_ends_with_the_number_of_its_signal(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...], status: int
) -> None:
    def interrupted(given: list[str]) -> None:
        raise KeyboardInterrupt(*arguments)

    monkeypatch.setattr("tensortide.cli.app.application", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["report", "mlp"])
    assert ended.value.code == status


def test_two_requests_end_a_search_and_a_third_the_program() -> None:
    """Two come together where Ctrl-C is typed twice; what was found is shown after the search, too."""
    before = signal.getsignal(signal.SIGINT)
    with heard():
        with counted() as requests:
            signal.raise_signal(signal.SIGINT)
        assert requests == [signal.SIGINT]
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.25)
        assert len(requests) == 2
        with postponed() as found:
            signal.raise_signal(signal.SIGINT)
        assert len(found) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As a shell starts what runs in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with heard() as requests, counted():
            signal.raise_signal(signal.SIGINT)
        assert requests == []
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_after_a_search_is_ended_by_the_next_request() -> None:
    with heard():
        with counted():
            signal.raise_signal(signal.SIGINT)
        end_requests()
        with postponed() as found:
            signal.raise_signal(signal.SIGINT)
        assert len(found) == 1


def test_nothing_is_run_after_a_search_that_sigterm_ended() -> None:
    with heard(), postponed() as found:
        with counted():
            signal.raise_signal(signal.SIGTERM)
        with counted() as again:
            assert again == [signal.SIGTERM]  # another search ends at once
        end_requests()
    assert [error.args for error in found] == [(signal.SIGTERM,)]


def test_a_search_without_a_request_leaves_signals_as_they_are() -> None:
    with heard() as ended:
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        with counted():
            assert signal.getsignal(signal.SIGINT) is not before[0]
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert ended == []


@pytest.mark.parametrize(("number", "times", "status"), [(signal.SIGINT, 2, 0), (signal.SIGTERM, 1, 143)])
def test_place_shows_its_best_whatever_ends_its_search(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    number: signal.Signals,
    times: int,
    status: int,
) -> None:
    """Signals arrive 0.15 s apart while the first placements are simulated."""
    machine = tmp_path / "two.json"
    devices = [{"name": "gpu", "count": 2, "device": "A100-SXM-80GB"}]
    machine.write_text(json.dumps({"devices": devices, "links": [{"between": ["gpu*"], "link": "pcie4"}]}))
    left, measure = [number] * times, Session.measure

    def interrupted(session: Session, *arguments: Any) -> Any:
        found = measure(session, *arguments)
        while left:
            signal.raise_signal(left.pop())
            time.sleep(0.15)
        return found

    monkeypatch.setattr(Session, "measure", interrupted)
    ended: str | int | None = 0
    try:
        main(["place", "mlp", "--machine", str(machine), "--json", "--quiet"])
    except SystemExit as error:
        ended = error.code
    shown = capsys.readouterr()
    assert (ended, shown.err) == (status, "interrupted by SIGTERM\n" if status else "")
    assert json.loads(shown.out)["sections"]["placed_step"]["facts"]["ended"] == "interrupted"
