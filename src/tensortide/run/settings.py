"""Settings of the process under a live budget: a recomputed op runs under those of its first run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.backends import ContextProp

from tensortide.recorder.settings import TABLE, Settings, change, snapshot, stale
from tensortide.recorder.surroundings import replaced
from tensortide.run.torch_compat import C

__all__ = ["Settings", "applied", "settings_seen", "snapshot", "stale"]

_UNLISTED = ("_set_default_tensor_type", "_set_fp32_precision_setter")
"""Functions of ``torch._C`` that change settings of the table, too."""


@contextlib.contextmanager
def applied(settings: Settings) -> Iterator[None]:
    """Let ``settings`` hold while active."""
    before = snapshot()
    try:
        change(settings)
        yield
    finally:
        change(before)


@contextlib.contextmanager
def settings_seen(changed: Callable[[Settings], None]) -> Iterator[None]:
    """Tell ``changed`` of the settings now, and whenever the program has changed one."""
    with contextlib.ExitStack() as stack:
        for name in (*TABLE, *_UNLISTED):
            for owner in (C, torch):
                original = getattr(owner, name, None)
                if original is not None:
                    stack.enter_context(replaced(owner, name, _noting(original, changed)))
        own: Any = ContextProp
        stack.enter_context(replaced(own, "__set__", _noting(own.__set__, changed)))
        changed(snapshot())
        yield


def _noting(change: Callable[..., Any], changed: Callable[[Settings], None]) -> Callable[..., Any]:
    @functools.wraps(change)
    def noted(*args: Any, **kwargs: Any) -> Any:
        result = change(*args, **kwargs)
        changed(snapshot())
        return result

    return noted
