"""The command line: one thin file per verb."""

from __future__ import annotations

import os
import sys

from tensortide.errors import TensortideError

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. Exits 0 on success, 1 on a tensortide error, 2 on wrong usage, 130 on Ctrl-C."""
    from tensortide.cli.app import app

    try:
        app(arguments)
    except TensortideError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        raise SystemExit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
