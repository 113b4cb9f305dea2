"""Communication between processes under a live budget: its ops recognized, and followed into the ops they are made of.

Backends go on reading and writing after an op has returned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from tensortide.graph.communication import COMMUNICATION
from tensortide.recorder.torch_compat import DispatchKey
from tensortide.run.torch_compat import DispatchKeySet, WithKeys, excluded_keys, included_keys, key_of_device

WAIT = "wait_tensor"
_GROUP, _WORK = "torch.classes.c10d.ProcessGroup", "torch.classes.c10d.Work"


def communicates(schema: Any) -> bool:
    """True for the schema of an op in which other processes take part."""
    if schema.name.partition("::")[0] in COMMUNICATION:
        return True
    return any(kind in str(part.type) for part in (*schema.arguments, *schema.returns) for kind in (_GROUP, _WORK))


@contextlib.contextmanager
def listening(mode: Any) -> Iterator[None]:
    """Let ``mode`` see the ops inside the one at hand, also where the compiled core has switched all modes off."""
    with mode:
        excluded = excluded_keys()
        for key in (DispatchKey.Python, DispatchKey.PythonTLSSnapshot):
            excluded = excluded.remove(key)
        with WithKeys(included_keys(), excluded):
            yield


def followed(mode: Any, func: Any, tensors: list[torch.Tensor], args: Any, kwargs: dict[str, Any]) -> Any:
    """Run the composite ``func``, whose arguments are ``tensors`` among others, such that ``mode`` sees its ops."""
    if not tensors:
        return func(*args, **kwargs)
    key = getattr(DispatchKey, key_of_device(tensors[0].device.type))
    with listening(mode):
        return func.redispatch(DispatchKeySet(key), *args, **kwargs)


def work_of(result: Any) -> Any:
    """The Work in the ``result`` of an op or a backend; None if there is none."""
    for item in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(item, torch.distributed.Work):
            return item
        if isinstance(item, torch.ScriptObject):
            return torch.distributed.Work.unbox(item)
    return None
