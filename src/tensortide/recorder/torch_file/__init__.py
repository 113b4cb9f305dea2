"""Code of the files that ``plan --torch`` writes, in parts: each is a module that needs PyTorch alone.

Below ``MARK`` a part is copied as it is; above it stand its imports, and placeholders for the tables of the file.
"""

from __future__ import annotations

import importlib.resources
from typing import Literal, TypeAlias

Part: TypeAlias = Literal["applied", "checkpoints", "policy", "offload"]

MARK = "# -- copied into files --\n"


def source(part: Part) -> tuple[tuple[str, ...], str]:
    """The imports of ``part``, a line each, and the code that is copied."""
    text = importlib.resources.files(__name__).joinpath(f"{part}.py").read_text(encoding="utf-8")
    head, _, code = text.partition(MARK)
    lines = head.splitlines()
    imports = [line for line in lines if line.startswith(("import ", "from ")) and "tensortide" not in line]
    return tuple(line for line in imports if "__future__" not in line), code.strip() + "\n"
