"""The command line: one thin file per verb."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from tensortide.cli.console import told
from tensortide.cli.messages import Error, brief, clean_warnings, without_line_breaks
from tensortide.cli.scripts import as_script, likely, with_script
from tensortide.errors import ExitStatus, TensortideError, status_of
from tensortide.write import reason_of

if TYPE_CHECKING:
    from cyclopts import CycloptsError, UnknownOptionError

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and exit with an ExitStatus, or with 128 + n on signal n: 130 on Ctrl-C.

    An error is a text on standard error, and with ``--json`` also an object on standard output. One that nobody foresaw
    has its traceback too, and no status of an answer.
    """
    typed = sys.argv[1:] if arguments is None else arguments
    exit_ = partial(_exit, as_json=wants_json(typed), typed=typed)
    try:
        with clean_warnings(), told():
            _run(typed, exit_)
    except KeyboardInterrupt as error:
        number = error.args[0] if error.args and isinstance(error.args[0], int) else signal.SIGINT
        name = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
        exec("")  # else Python remembers an interrupt of what is imported, and ends by SIGINT whatever the status
        exit_(128 + number, "Interrupted", f"interrupted{name}", before="")
    except Exception as error:  # noqa: BLE001 # shown in full; the status that Python has for it, 1, is that of a no
        traceback.print_exc()
        exit_(ExitStatus.CANNOT, type(error).__name__, f"{type(error).__name__}: {error}")


def _run(typed: list[str], exit_: Callable[[int, str, str], NoReturn]) -> None:
    """Run the command line as ``typed``; ``exit_`` ends the program with a status, a kind of error and its text."""
    from cyclopts import CycloptsError

    from tensortide.cli.app import application
    from tensortide.cli.interrupt import heard

    try:
        given = with_script([*typed[1:], "--help"] if typed[:1] == ["help"] else typed)
        with heard() as requests:
            try:
                application(given)(given, exit_on_error=False, print_error=False)
            except SystemExit:
                if signal.SIGTERM not in requests:
                    raise
            sys.stdout.flush()
        if signal.SIGTERM in requests:  # the answer is on standard output already, also as JSON
            _exit(128 + signal.SIGTERM, "Interrupted", "interrupted by SIGTERM", before="")
    except CycloptsError as error:
        exit_(ExitStatus.WRONG, "UsageError", usage(error))
    except TensortideError as error:
        exit_(status_of(error), type(error).__name__, f"{error}{as_script(typed, error)}")
    except MemoryError as error:
        exit_(status_of(error), "MemoryError", f"memory ran out{f': {error}' if str(error) else ''}")
    except UnicodeEncodeError as error:
        _name_error(error, partial(exit_, ExitStatus.WRONG, "OutputError"))
        raise
    except OSError as error:
        _system_error(error, exit_)
        raise


def _name_error(error: UnicodeEncodeError, exit_: Callable[[str], NoReturn]) -> None:
    """End the program if ``error`` is that of a file whose name has bytes that are no text."""
    if re.match("[\ud800-\udfff]", error.object[error.start :]):
        name = error.object[max(0, error.start - 60) : error.start + 20]
        exit_(f"cannot write {name}: the name is no text in UTF-8. Rename the file.")


def _system_error(error: OSError, exit_: Callable[[int, str, str], NoReturn]) -> None:
    """End the program if ``error`` is that of a file, of a reader that leaves or of a full disk."""
    if error.filename is not None:
        exit_(status_of(error), "OSError", f"{error.filename}: {error.strerror}")
    is_full = status_of(error) is ExitStatus.CANNOT
    if not isinstance(error, BrokenPipeError) and not is_full:
        return
    # discard what is buffered, so that flushing it at exit does not fail
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if is_full:
        _exit(ExitStatus.CANNOT, "OSError", f"cannot write to standard output: {reason_of(error)}.")
    raise SystemExit(0) from None


def wants_json(arguments: Sequence[str]) -> bool:
    """Tell whether ``arguments`` ask for JSON; those after ``--`` are of another program.

    Examples:
        >>> wants_json(["report", "gpt2", "--json"]), wants_json(["report", "--", "python", "train.py", "--json"])
        (True, False)
    """
    own = arguments[: arguments.index("--") if "--" in arguments else None]
    return any(text in ("--json", "--json=true") for text in own)


def _exit(
    code: int, kind: str, text: str, *, before: str = "error: ", as_json: bool = False, typed: Sequence[str] = ()
) -> NoReturn:
    """End the program, called as ``typed``, with an error of this ``kind``."""
    text = brief(without_line_breaks(text, typed))
    with contextlib.suppress(OSError):  # a full disk is no other status
        print(f"{before}{text}", file=sys.stderr, flush=True)  # noqa: T201
    if as_json:
        error = Error(format="tensortide.error", schema_version=1, kind=kind, message=text, exit_status=code)
        with contextlib.suppress(OSError):
            print(json.dumps(error, indent=1, ensure_ascii=False), flush=True)  # noqa: T201
    raise SystemExit(code) from None


def usage(error: CycloptsError) -> str:
    """Describe an error in the command line, and its remedy."""
    from cyclopts import UnknownCommandError, UnknownOptionError, UnusedCliTokensError

    verb = " ".join(("tensortide", *(error.command_chain or ())))
    what = str(error).strip()
    if isinstance(error, UnknownCommandError) and (first := (error.unused_tokens or [""])[0]):
        from tensortide import examples
        from tensortide.python_object import is_path, names_object

        if first in {example.name for example in examples.examples()} or is_path(first) or names_object(first):
            return f"{first} stands where a verb belongs: tensortide report {first}\nSee {verb} --help."
    if isinstance(error, UnknownOptionError):
        what = _unknown_option(what, error)
    if isinstance(error, UnusedCliTokensError):
        stray = error.unused_tokens or []
        if all("=" in token for token in stray):
            return f"{' '.join(stray)} stands alone: write --set before each, as in --set {' --set '.join(stray)}"
        what = f"Unexpected argument: {' '.join(stray)}."
    return f"{what.replace('?.', '?')}\nSee {verb} --help."


def _unknown_option(what: str, error: UnknownOptionError) -> str:
    """``what`` is said of an unknown option, with the one that is meant: it may be a hyperparameter."""
    name = (error.token.keyword or error.token.value).partition("=")[0]
    plain = what.partition(" Did you mean ")[0]
    known = {word for option in error.argument_collection for word in option.names if word.startswith("--")}
    if meant := likely(name, known):
        return f"{plain} Did you mean {meant}?"
    may_be = "--set" in known and re.fullmatch(r"--[A-Za-z]\w*", name)
    return f"{plain} A hyperparameter is set by --set {name[2:]}=VALUE." if may_be else plain
