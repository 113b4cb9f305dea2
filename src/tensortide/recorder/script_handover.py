"""Entry point in place of a Python process that a launcher would start: its command and its environment are written to
a file, and nothing runs. It is run as a file, by interpreters that may lack tensortide, and stands as
``sitecustomize.py`` in a folder that all of them search."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

FILE = "TENSORTIDE_HANDOVER"
"""Variable that names the file."""
_TOOLS = ("conda", "mamba", "pip", "pip3", "poetry", "uv", "hf", "huggingface-cli", "wandb", "gpustat", "ipython")
"""Programs in Python that train nothing: they run."""
_MODULES = ("pip", "venv", "ensurepip", "json.tool", "site", "sysconfig", "compileall", "nltk.downloader")
_VALUED = ("-W", "-X", "--check-hash-based-pycs")


def trains(words):  # type: ignore[no-untyped-def]  # no annotations that an old interpreter cannot read
    """Tell whether the command ``words`` of an interpreter may run a training script."""
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word in _VALUED:
            del rest[:1]
        elif not word.startswith("--") and "c" in word:
            return False
        elif not word.startswith("--") and word.endswith("m"):
            return bool(rest) and rest[0] not in _MODULES
    return bool(rest) and rest[0] != "-" and Path(rest[0]).name not in _TOOLS


def write(words, environment):  # type: ignore[no-untyped-def]
    """Write the command that would start, unless another one has been written."""
    file, aside = Path(os.environ[FILE]), Path(f"{os.environ[FILE]}.{os.getpid()}")
    started = {"words": list(words), "environment": dict(environment), "folder": str(Path.cwd())}
    aside.write_text(json.dumps(started), "utf-8")
    if not file.exists():
        aside.replace(file)


def wait():  # type: ignore[no-untyped-def]
    """Wait to be ended: what comes after the process in a script of a shell must not run."""
    while Path(os.environ[FILE]).parent.exists():
        time.sleep(0.1)
    os.killpg(os.getpgrp(), signal.SIGKILL)  # a group of its own, as timeout makes one, that nobody else ends


def _asked(module, arguments):  # type: ignore[no-untyped-def]
    """Run a launcher's module until it starts a process, as on a machine with GPUs."""
    import torch
    import torch.distributed.run

    def elastic(args):  # type: ignore[no-untyped-def]
        own = [f"--{name}={value}" for name, value in sorted(vars(args).items()) if name in ("nnodes", "node_rank")]
        kind = ["-m"] if args.module else []
        words = ["torchrun", f"--nproc_per_node={args.nproc_per_node}", *own, *kind, args.training_script]
        write([*words, *args.training_script_args], os.environ)
        raise SystemExit(0)

    def process(words, *_, **options):  # type: ignore[no-untyped-def]
        if Path(words[0]).name == "nvidia-smi":
            raise FileNotFoundError(words[0])
        write(words, options.get("env") or os.environ)
        raise SystemExit(0)

    given = re.search(r"--num[-_]processes[= ](\d+)", " ".join(arguments))
    count = int(given[1]) if given else 1
    torch.cuda.is_available = lambda: True
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    torch.cuda.device_count = lambda: count
    torch.cuda.get_device_properties = lambda *_: type("Properties", (), {"name": "GPU", "total_memory": 1 << 40})()
    torch.distributed.run.run = elastic
    subprocess.Popen = process  # type: ignore[assignment,misc]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _not_done(name):  # type: ignore[no-untyped-def]
    """Note that the command ``name`` is left out."""
    with Path(f"{os.environ[FILE]}.not-done").open("a", encoding="utf-8") as log:
        log.write(f"{name}\n")


if __name__ == "__main__":
    if sys.argv[1] == "--asked":
        _asked(sys.argv[2], sys.argv[3:])
    elif sys.argv[1] == "--not-done":
        _not_done(sys.argv[2])
    elif sys.argv[1].startswith("python") and not trains(sys.argv[1:]):
        _not_done(" ".join(sys.argv[1:4]))
    else:
        write(sys.argv[1:], os.environ)
        wait()
elif FILE in os.environ and trains(sys.orig_argv):
    write(sys.orig_argv, os.environ)
    wait()
