"""Ctrl-C ends the program even where Python drops the exception that it raises."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tensortide.cli import main
from tensortide.cli.interrupt import heard, postponed

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
