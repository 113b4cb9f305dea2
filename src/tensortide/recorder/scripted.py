"""TorchScript under a capture. ``torch.jit.script`` finds PyTorch's own functions by identity, and compiles the source
of others: it is given the real function for one that a capture has put in its place."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tensortide.recorder.code_paths import PACKAGE
from tensortide.recorder.surroundings import replaced, wrapped_in


@contextlib.contextmanager
def scripted() -> Iterator[None]:
    """Let TorchScript compile the program's functions on fake tensors while active. What it traces
    it runs again for a check, as ever, but results without values are not compared."""

    def checked(script: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(script)
        def compiled(**options: Any) -> Any:
            made = script(**{**options, "_frames_up": options["_frames_up"] + 1})
            if _makes_tensor_of_list(made):
                name = options["obj"].__qualname__
                raise RuntimeError(f"{name} writes a list to a tensor in TorchScript: fake tensors have no memory")
            return made

        return compiled

    with (
        wrapped_in("torch.jit._builtins", "_find_builtin", _given_real),
        wrapped_in("torch.jit._recursive", "try_compile_fn", _given_real),
        wrapped_in("torch.jit._script", "_script_impl", checked),
        wrapped_in("torch.jit._trace", "_check_trace", _uncompared),
    ):
        yield


def _makes_tensor_of_list(made: Any) -> bool:
    nodes = made.graph.findAllNodes("aten::tensor") if hasattr(made, "graph") else ()
    return any(next(node.inputs()).type().kind() == "ListType" for node in nodes)


def _uncompared(check: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(check)
    def run(*args: Any, **kwargs: Any) -> Any:
        with replaced(torch.testing, "assert_close", lambda *args, **kwargs: None):
            return check(*args, **kwargs)

    return run


def _given_real(read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def of_real(function: Any, *args: Any) -> Any:
        return read(_real(function), *args)

    return of_real


def _real(function: Any) -> Any:
    """The function in whose place ``function`` is, itself for one that no capture made."""
    while inspect.isfunction(function) and function.__code__.co_filename.startswith(f"{PACKAGE}recorder"):
        if not hasattr(function, "__wrapped__"):
            break
        function = function.__wrapped__
    return function
