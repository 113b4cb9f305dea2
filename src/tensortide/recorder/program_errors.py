"""Errors of a program that is not given what it needs, in one line: what it lacks, where, and what to do."""

from __future__ import annotations

import errno
import re
import traceback
from pathlib import Path

from tensortide.errors import headline
from tensortide.recorder.code_paths import is_internal

_MESH = re.compile(r"Mesh should not be bigger than default world size (\d+), but found (\d+) ranks")
_LIBRARY = re.compile(r"^(\S+\.(?:so|dll|dylib)[\d.]*): cannot open shared object file|DLL load failed")
_TO_COMPILE = re.compile(r"CUDA_HOME environment variable is not set|Ninja is required to load C\+\+|nvcc.*not found")
_COMPILED = (
    *(
        "apex",
        "amp_C",
        "fused_layer_norm_cuda",
        "transformer_engine",
        "flash_attn",
        "flash_attn_2_cuda",
        "causal_conv1d",
    ),
    *("mamba_ssm", "vllm", "deep_ep", "deep_gemm", "grouped_gemm", "xformers", "triton", "pytorch3d", "torch_scatter"),
)
"""Modules that are compiled for a GPU."""
_WITHOUT = "install it, or choose the program's own implementation in PyTorch by its options"


def of_program(error: BaseException, name: str) -> str | None:
    """Say what the program ``name`` lacks, by the ``error`` that it raised; None for another error."""
    said = _lacks(error)
    return None if said is None else f"{name} {said[0]}{_place(error)}: {said[1]}"


def _lacks(error: BaseException) -> tuple[str, str] | None:
    """What the program lacks, and what to do."""
    text = headline(error)
    if isinstance(error, FileNotFoundError) and error.errno == errno.ENOENT and isinstance(error.filename, str):
        folder = "" if Path(error.filename).is_absolute() else f" in {Path.cwd()}"
        return (
            f"needs {error.filename}, which is not there{folder}",
            "make it, or give its place by the script's options",
        )
    if (found := _MESH.search(text)) is not None:
        ranks, wanted = found.groups()
        give = f"--ranks {wanted}, or a launch of {wanted} processes, as in torchrun --nproc_per_node={wanted}"
        return f"has a mesh of {wanted} ranks, and is launched on {ranks}", give
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _COMPILED:
        module = str(error.name).partition(".")[0]
        return f"needs {module}, a compiled extension that is not installed", _WITHOUT
    if _LIBRARY.search(text) or _TO_COMPILE.search(text):
        return f"needs a compiled extension that does not run here ({text})", _WITHOUT
    return None


def _place(error: BaseException) -> str:
    """The innermost line that is the program's own, or else a library's."""
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_internal(frame.f_code.co_filename)
    ]
    own = [each for each in frames if "site-packages" not in each[0]] or frames
    return f" (at {own[-1][0]}:{own[-1][1]})" if own else ""
