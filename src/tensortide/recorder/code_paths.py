"""Whose code a frame runs: the user's, or that of PyTorch, the standard library or tensortide."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from types import CodeType, FrameType

import torch

PACKAGE = str(Path(__file__).parent.parent) + os.sep
TORCH = str(Path(torch.__file__).parent) + os.sep
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
CHECKPOINT = TORCH + str(Path("utils/checkpoint.py"))
AUTOGRAD = TORCH + str(Path("autograd/__init__.py"))
ENGINE = TORCH + str(Path("autograd/graph.py"))
OPTIMIZERS = TORCH + "optim" + os.sep
AROUND = (TORCH + "_compile.py", TORCH + str(Path("_dynamo/eval_frame.py")), f"{PACKAGE}recorder{os.sep}compiled.py")
"""Files of the code around the handler of a recorder that is not to be compiled."""
CAPTURE = f"{PACKAGE}recorder{os.sep}building.py"
"""The file that calls the step: what is around it is no code of the step."""
COMPOSITES = f"{PACKAGE}recorder{os.sep}composites.py"


def is_internal(filename: str) -> bool:
    """True for code of the framework, the standard library or tensortide (examples are user code)."""
    if filename.startswith(PACKAGE):
        return not filename.startswith(f"{PACKAGE}examples{os.sep}")
    if filename.startswith(_STDLIB):
        return "site-packages" not in filename or filename.startswith(TORCH)
    return filename.startswith((TORCH, "<frozen", "<string", "<attrs"))


class Internal(dict[CodeType, bool]):
    """A cache of ``is_internal`` by code object."""

    def __missing__(self, code: CodeType) -> bool:
        self[code] = found = is_internal(code.co_filename)
        return found


def runs_in(frame: FrameType | None, filename: str) -> bool:
    """True if ``frame`` runs code of the file."""
    return frame is not None and frame.f_code.co_filename == filename
