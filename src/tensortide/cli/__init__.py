"""The command line: one thin file per verb."""

from __future__ import annotations

import errno
import os
import re
import sys
from typing import TYPE_CHECKING, NoReturn

from tensortide.errors import TensortideError

if TYPE_CHECKING:
    from cyclopts import CycloptsError

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. Exits 0 on success, 1 on a tensortide error, 2 on wrong usage, 130 on Ctrl-C."""
    from cyclopts import CycloptsError

    from tensortide.cli.interrupt import heard

    given = sys.argv[1:] if arguments is None else arguments
    try:
        from tensortide.cli.app import application, moved

        if (new := moved(given)) is not None:
            _exit(2, f"error: {new}")
        with heard():
            application(given)(given, exit_on_error=False, print_error=False)
            sys.stdout.flush()
    except CycloptsError as error:
        _exit(2, f"error: {usage(error)}")
    except TensortideError as error:
        _exit(1, f"error: {error}")
    except KeyboardInterrupt:
        _exit(130, "interrupted")
    except OSError as error:
        if error.filename is not None:
            _exit(1, f"error: {error.filename}: {error.strerror}")
        if not isinstance(error, BrokenPipeError) and error.errno != errno.ENOSPC:
            raise
        # what is buffered is discarded, so that the program does not fail on it when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.ENOSPC:
            _exit(1, "error: cannot write to standard output: the disk is full.")
        raise SystemExit(0) from None


def _exit(code: int, text: str) -> NoReturn:
    text = re.sub(r"(\S{200})\S{100,}(\S{50})", r"\1...\2", text)  # names thousands of characters long
    print(text, file=sys.stderr)  # noqa: T201
    raise SystemExit(code) from None


def usage(error: CycloptsError) -> str:
    """Describe an error in the command line, and its remedy."""
    from cyclopts import UnusedCliTokensError

    verb = " ".join(("tensortide", *(error.command_chain or ())))
    what = str(error).strip()
    if isinstance(error, UnusedCliTokensError):
        stray = error.unused_tokens or []
        if all("=" in token for token in stray):
            return f"{' '.join(stray)} stands alone: write --set before each, as in --set {' --set '.join(stray)}"
        what = f"Unexpected argument: {' '.join(stray)}."
    return f"{what.replace('?.', '?')}\nSee {verb} --help."
