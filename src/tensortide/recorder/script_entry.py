"""Entry point in the user's interpreter, which may lack tensortide or PyTorch; it is run as a file."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def main() -> int:
    """Run the script named on the command line: the file of the request, the script, its arguments."""
    request = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder of this file
    try:
        import tensortide.recorder.torch_compat  # noqa: F401  # before all else: it says what is wrong with PyTorch
        from tensortide.recorder.script_process import run
    except ImportError as error:
        said = f"{sys.executable} cannot run the script under tensortide: {error}"
        Path(request["outcome"]).write_text(json.dumps({"import": said}), "utf-8")
        return 1
    _import(request.get("imports", ()))
    if "forks" in request:
        return _forks(run, *request["forks"])
    return run(request, *sys.argv[2:])


def _import(names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):  # some are modules by name alone
            importlib.import_module(name)
    gc.freeze()  # what is imported is no garbage, and no part of the step: the recorder need not search it


def _forks(run: Callable[..., int], requests: int, answers: int) -> int:
    """Run the script in a fork of this process for each line from the descriptor ``requests``, which is a request,
    perhaps with ``imports`` for this process, and an ``environment`` and arguments (``command``) for the fork.

    Writes two lines to ``answers`` for each: the fork's process ID when it starts, its exit status when it has ended.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the fork, and for the parent process
    with os.fdopen(requests) as lines, os.fdopen(answers, "w", buffering=1) as answer:
        for line in lines:
            request = json.loads(line)
            _import(request.get("imports", ()))
            process = os.fork()
            if not process:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                if "environment" in request:
                    os.environ.clear()
                    os.environ.update(request["environment"])
                return run(request, *request.get("command", sys.argv[2:]))
            answer.write(f"{process}\n")
            answer.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
