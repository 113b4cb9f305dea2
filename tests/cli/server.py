"""The process that ``tests.cli.command`` forks runs of the command line from: it has imported all that they import.

Each line that it reads is a run: arguments, folder, files for its output or the terminal that it is on, variables of
its environment, seconds that it may take. Answered is its exit code.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import json
import os
import pkgutil
import runpy
import signal
import sys
import warnings
import weakref
from typing import Any

import tensortide
from tensortide.cli import console
from tensortide.cli.app import VERBS, application
from tensortide.targets import requests
from tests.servers import ROOT

IMPORTED = (
    *("sympy", "torch", "torch._dynamo"),
    *(["matplotlib.backends.backend_agg"] if importlib.util.find_spec("matplotlib") else []),
)
KERNELS = {
    **dict.fromkeys(("plan", "remat", "fit"), "compile_plans"),
    "place": "compile_placements",
}
"""Verbs whose runs call kernels, and the function of ``tests.kernels`` that loads them."""
UNHURRIED_S = 1000.0
"""Seconds until a run says how far it is, and until a script that was recorded is killed: a busy machine is slow, and
no reason to print other lines."""


def serve(requests: int, answers: int) -> None:
    """Fork a run for each line of ``requests``; the fork runs, and comes back from here as the server does."""
    with os.fdopen(requests) as lines, os.fdopen(answers, "w") as codes:
        for line in lines:
            prepare()
            run = json.loads(line)
            if loader := KERNELS.get(next(iter(run["arguments"]), "")):
                load_kernels(loader)
            child = os.fork()
            if not child:
                break
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=codes, flush=True)
        else:
            return
    become(run)
    runpy.run_module("tensortide", run_name="__main__", alter_sys=True)


@functools.cache
def prepare() -> None:
    """Import all that runs import, and do once what PyTorch and tensortide do at first."""
    for name in (*IMPORTED, *modules()):
        importlib.import_module(name)
    application([name for verbs in VERBS.values() for name in verbs])
    capture_once()
    vars(console).update(LINE_S=UNHURRIED_S)
    vars(requests).update(PATIENCE_S=UNHURRIED_S)
    gc.collect()
    gc.freeze()  # or else every run looks through all of it, at captures and when it ends
    for finalizer in vars(weakref.finalize)["_registry"]:
        finalizer.atexit = False  # PyTorch would unregister each of its libraries: that takes longer than most runs


def capture_once() -> None:
    """Capture a tiny step, and count and time it: PyTorch and tensortide look up things at first that are kept."""
    from tensortide.timing import device, estimate

    sizes = {"batch": 2, "seq": 4, "hidden": 8, "heads": 2, "layers": 1, "vocab": 16}
    graph = tensortide.open("gpt2", hyperparameters=sizes).graph
    tensortide.count(graph)
    estimate(graph, device("A100-SXM-80GB"))


@functools.cache
def load_kernels(loader: str) -> None:
    """Load the kernels of plans or of placements: each run would do it for half a second or more."""
    sys.path.append(ROOT)
    getattr(importlib.import_module("tests.kernels"), loader)()
    sys.path.remove(ROOT)
    gc.freeze()


def modules() -> list[str]:
    """Names of all modules of tensortide that import no other framework, and not PyTorch's compiler, which takes a
    second."""
    apart = ("tensortide.__main__", "tensortide.examples", "tensortide.recorder.compiled")
    walked = pkgutil.walk_packages(tensortide.__path__, "tensortide.")
    return [module.name for module in walked if not module.name.startswith(apart)]


def become(run: dict[str, Any]) -> None:
    """Be as ``python -m tensortide`` is that was started so."""
    os.chdir(run["folder"])
    os.environ.update(run["environment"])
    if "terminal" in run:
        os.setsid()  # the first terminal that it opens is its own, and sends it Ctrl-C
        terminal = os.open(run["terminal"], os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(terminal, number)
    else:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, run["out"]), (2, run["err"])):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
    sys.argv[1:] = run["arguments"]
    sys.path[:0] = [run["folder"], *filter(None, run["environment"].get("PYTHONPATH", "").split(os.pathsep))]
    if "PYTHONWARNINGS" in run["environment"]:
        warnings.simplefilter(run["environment"]["PYTHONWARNINGS"])
    signal.alarm(run["timeout_s"])
