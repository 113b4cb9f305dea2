"""The compiled core as a file: built once per machine, in the background, by the C++ compiler that is found.

A file that is not whole, as a power cut leaves it, is built again before anything of it is loaded.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import warnings
from pathlib import Path
from typing import Any

import torch

from tensortide.errors import CoreUnavailable
from tensortide.sealed import SCRIPT, is_whole
from tensortide.user_cache import cache_folder, mark_used

NAME = "tensortide_core"
_SOURCES = Path(__file__).parent
_FLAGS = ("-O2", "-std=c++20", "-fPIC", "-shared", "-w", "-fvisibility=hidden")
_LIBRARIES = ("c10", "torch_cpu", "torch_python")
_INTO_PLACE = """
log=$1 made=$2 failure=$3 path=$4 python=$5 sealed=$6
shift 6
if "$@" >"$log" 2>&1; then "$python" -I -S "$sealed" "$made" "$path" >"$log" 2>&1 && rm "$log"
else mv "$log" "$failure"; fi
"""
"""Shell script that runs a compiler, seals the library that it has made and puts it, or the compiler's messages, where
they belong. A library that could not be sealed, on a disk that is full, is tried again by the next process."""
_lock = threading.Lock()


@functools.cache
def library(folder: Path | None = None) -> Library | None:
    """The library in ``folder``, or in the user's cache; None where nothing can build one."""
    if sys.platform != "linux" or sys.implementation.name != "cpython" or not sys.executable:
        return None
    compiler = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++") or shutil.which("clang++")
    includes = (Path(torch.__file__).parent / "include", Path(sysconfig.get_paths()["include"]))
    if compiler is None or not (includes[0] / "torch/library.h").exists() or not (includes[1] / "Python.h").exists():
        return None
    return Library(folder or cache_folder(), compiler, includes)


class Library:
    """A library for this PyTorch, this Python and these sources; ``path`` is where it is once it is built."""

    def __init__(self, folder: Path, compiler: str, includes: tuple[Path, ...]) -> None:
        self.folder, self.compiler, self.includes = folder, compiler, includes
        text = "\n".join(path.read_text() for path in sorted([*_SOURCES.glob("*.h"), *_SOURCES.glob("*.cpp")]))
        made_by = (compiler, Path(compiler).stat().st_mtime_ns, _FLAGS, torch.__version__, torch.__file__, sys.version)
        self.path = folder / f"core-{hashlib.sha256(repr((text, made_by)).encode()).hexdigest()[:20]}.so"
        self._module: Any = None
        self._building: threading.Thread | None = None
        self._trouble = ""

    def module(self) -> Any:
        """The module, if it is built; None otherwise, and then it is being built from now on, unless that failed, of
        which one warning tells."""
        with _lock:
            if self._module is None and not self._trouble:
                if mark_used(self.path) and is_whole(self.path):
                    self._load()
                elif self._building is None:
                    self._building = threading.Thread(target=self._build, name="tensortide-core", daemon=True)
                    self._building.start()
            if self._trouble and self._module is None:
                self._module = False
                warnings.warn(
                    "a memory budget does without its compiled core, and takes some 10 microseconds more per op: "
                    f"{self._trouble}. CXX names another compiler.",
                    CoreUnavailable,
                    stacklevel=2,
                )
            return self._module or None

    def wait(self) -> Any:
        """The module, once it is built; None if that failed."""
        found = self.module()
        if found is None and self._building is not None:
            self._building.join()
            found = self.module()
        return found

    def command(self, to: Path) -> list[str]:
        """The command that builds the library."""
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
        libraries = (f"-L{Path(torch.__file__).parent / 'lib'}", *(f"-l{name}" for name in _LIBRARIES))
        headers = (option for folder in self.includes for option in ("-isystem", str(folder)))
        return [self.compiler, *_FLAGS, abi, *headers, str(_SOURCES / "core.cpp"), "-o", str(to), *libraries]

    def _build(self) -> None:
        """Build the library unless another process does, or has failed to."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / f"{self.path.stem}.lock").open("w") as lock:
                _lock_file(lock)
                if not is_whole(self.path) and not self.failure.exists():
                    self._compile(lock.fileno())
        except OSError as error:
            self._trouble = f"{self.folder}: {error}"
        if self.failure.exists():
            self._trouble = f"{self.compiler} failed, see {self.failure}"
        elif not self._trouble and not is_whole(self.path):
            self._trouble = f"{self.path} could not be written, see {self._new('.log')}"

    @property
    def failure(self) -> Path:
        """File with the compiler's messages if it failed."""
        return self.path.with_suffix(".log")

    def _new(self, suffix: str) -> Path:
        """The file with this ``suffix`` of a compilation that is not done."""
        return self.path.with_suffix(f".new{suffix}")

    def _compile(self, lock: int) -> None:
        """Compile in a process that outlives this one, and keeps the ``lock`` until it is done: short programs that
        open a budget must not start one compiler each."""
        made = self._new(".so")
        files = [str(file) for file in (self._new(".log"), made, self.failure, self.path)]
        files += [sys.executable, SCRIPT]
        subprocess.run(
            ["sh", "-c", _INTO_PLACE, "sh", *files, *_politely(self.command(made))],
            stdin=subprocess.DEVNULL,
            pass_fds=[lock],
            start_new_session=True,
            check=False,
        )

    def _load(self) -> None:
        """Load what is built, unless its place in the dispatcher is taken."""
        loader = importlib.machinery.ExtensionFileLoader(NAME, str(self.path))
        spec = importlib.util.spec_from_loader(NAME, loader)
        assert spec is not None
        try:
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
        except ImportError as error:
            self._trouble = str(error)
            return
        if module.register():
            self._module = module
        else:
            self._trouble = "another library has taken its key of PyTorch's dispatcher"


def _politely(command: list[str]) -> list[str]:
    """``command``, after everything else that wants the processor."""
    nice = shutil.which("nice")
    return [nice, "-n", "10", *command] if nice else command


def _lock_file(file: Any) -> None:
    """Wait until no other process has ``file`` locked; it is ours until it is closed."""
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX)
