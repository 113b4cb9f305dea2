"""The command line, called in this process."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any, NamedTuple

from tensortide.cli import main
from tensortide.errors import ExitStatus

ANSWERS = (ExitStatus.HOLDS, ExitStatus.FAILS, ExitStatus.UNDECIDED)
"""Statuses of answers: others are of errors, and of searches that were interrupted."""


class Answer(NamedTuple):
    """What a verb printed, and its exit status."""

    status: int
    text: str

    @property
    def document(self) -> dict[str, Any]:
        """The text as JSON."""
        found: dict[str, Any] = json.loads(self.text)
        return found


def command(*arguments: str) -> Answer:
    """Call the command with ``arguments`` and ``--json``. Raises RuntimeError for an error of the command."""
    given, out, err, status = [*arguments, "--json", "--quiet"], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(given)
        except SystemExit as stopped:
            status = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    # an error is a document of its own
    if status not in ANSWERS or (status and '"tensortide.error"' in out.getvalue()):
        raise RuntimeError(f"tensortide {' '.join(given)} ends with {status}: {err.getvalue().strip()}")
    return Answer(status, out.getvalue())
