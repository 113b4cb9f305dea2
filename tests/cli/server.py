"""The process that ``tests.cli.command`` forks runs of the command line from: it has imported all that they import.

Each line of standard input is a run: arguments, folder, files for its output, variables of its environment, seconds
that it may take. Answered is its exit code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import sys
import warnings
from typing import Any

from tensortide.cli.app import VERBS, application

IMPORTED = ("sympy", "torch", "torch._dynamo")


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    application([name for verbs in VERBS.values() for name in verbs])
    gc.freeze()  # or else every run looks through all of it when it ends
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        child = os.fork()
        if not child:
            answers.close()
            become(json.loads(line))
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
    raise SystemExit


def become(run: dict[str, Any]) -> None:
    """Be as ``python -m tensortide`` is that was started so."""
    os.chdir(run["folder"])
    os.environ.update(run["environment"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, run["out"]), (2, run["err"])):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
    sys.argv[1:] = run["arguments"]
    sys.path[:1] = [run["folder"], *filter(None, run["environment"].get("PYTHONPATH", "").split(os.pathsep))]
    if "PYTHONWARNINGS" in run["environment"]:
        warnings.simplefilter(run["environment"]["PYTHONWARNINGS"])
    signal.alarm(run["timeout_s"])


if __name__ == "__main__":
    main()
    runpy.run_module("tensortide", run_name="__main__", alter_sys=True)
