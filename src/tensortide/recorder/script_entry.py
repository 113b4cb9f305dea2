"""Entry point in the user's interpreter, which may lack tensortide or PyTorch; it is run as a file."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
from collections.abc import Callable
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
    for name in request.get("imports", ()):
        with contextlib.suppress(ImportError):  # some are modules by name alone
            importlib.import_module(name)
    gc.freeze()  # what is imported is no garbage, and no part of the step: the recorder need not search it
    if "forks" in request:
        return _forks(run, *request["forks"])
    return run(request, *sys.argv[2:])


def _forks(run: Callable[..., int], requests: int, answers: int) -> int:
    """Run the script in a fork of this process for each line from the descriptor ``requests``, which is a request.

    Writes two lines to ``answers`` for each: the fork's process ID when it starts, its exit status when it has ended.
    """
    with os.fdopen(requests) as lines, os.fdopen(answers, "w", buffering=1) as answer:
        for line in lines:
            process = os.fork()
            if not process:
                return run(json.loads(line), *sys.argv[2:])
            answer.write(f"{process}\n")
            answer.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
