"""Write the ops that models dispatch in a forward and a backward pass: op, and how many models of each library do.

    python -m scripts.coverage.models transformers timm      # libraries that are installed; others keep their counts

A model is built on the device ``meta``; where its code reads values, on the CPU, if it is small enough. Each runs in a
process of its own, so that one that crashes is only left out. torchvision is built for another PyTorch than that beside
it: its operators are declared here, and models that call them on real tensors are left out.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scripts.coverage.page import MODEL_OPS, model_ops
from scripts.coverage.zoo import LIBRARIES, Architecture

_DECLARED = ("nms", "qnms")
_LARGEST = 300_000_000
"""Parameters of a model that is built on the CPU."""
_ATTEMPTS: tuple[tuple[str, torch.dtype | None], ...] = (("meta", None), ("meta", torch.bfloat16), ("cpu", None))
"""Devices and dtypes in turn: some kernels on ``meta`` take numbers of 16 bits alone."""
_SECONDS = 120
_FAILURES = (
    RuntimeError, ValueError, TypeError, LookupError, AttributeError, ImportError, MemoryError, AssertionError,
)  # fmt: skip
"""Whatever the code of a model raises on inputs that it does not take."""


class _Names(TorchDispatchMode):
    """Records the names of ops."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "prim":  # questions about tensors
            self.seen.add(func.name())
        return func(*args, **(kwargs or {}))


def _numbers(value: object) -> Iterator[torch.Tensor]:
    """Yield the results that have a gradient."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            yield value.abs() if value.is_complex() else value
    elif isinstance(value, dict):
        yield from _numbers(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif hasattr(value, "__dict__"):
        yield from _numbers([item for item in vars(value).values() if isinstance(item, torch.Tensor | list | tuple)])


def _dispatched(build: Callable[[], tuple[Any, Any]], device: str, dtype: torch.dtype | None) -> set[str]:
    """Return the ops of a forward and a backward pass of a model on ``device``."""
    torch.manual_seed(0)
    if device == "cpu":
        with torch.device("meta"):
            count = sum(parameter.numel() for parameter in build()[0].parameters())
        if count > _LARGEST:
            raise MemoryError(f"{count:,} parameters")
    with torch.device(device):
        model, inputs = build()
        given: dict[Any, Any] = inputs if isinstance(inputs, dict) else dict(enumerate(inputs))
        if dtype is not None:
            model.to(dtype)
            given = {key: x.to(dtype) if x.is_floating_point() else x for key, x in given.items()}
        names = _Names()
        with names:
            model.train()
            result = model(**given) if isinstance(inputs, dict) else model(*given.values())
            total = [number.sum().float() for number in _numbers(result)]
            if total:
                torch.autograd.backward(torch.stack(total).sum())
    return names.seen


def _ops_of(model: Architecture) -> set[str]:
    """Return the ops of an architecture; none if no attempt runs."""
    seen: set[str] = set()
    for build in model.variants:
        for device, dtype in _ATTEMPTS:
            try:
                seen |= _dispatched(build, device, dtype)
                break
            except _FAILURES as error:
                print(f"  {model.name} on {device}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
            gc.collect()
        if seen and not model.every:
            break
    return seen


def _apart(model: Architecture) -> set[str]:
    """Return the ops of an architecture, recorded in a fork of this process."""
    import signal

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ops.json")
        child = os.fork()
        if not child:
            signal.alarm(_SECONDS)
            path.write_text(json.dumps(sorted(_ops_of(model))))
            os._exit(0)
        os.waitpid(child, 0)
        return set(json.loads(path.read_text())) if path.exists() else set()


def write(counts: dict[str, Counter[str]]) -> None:
    """Write the counts by library; those of other libraries stay."""
    known = {op.name: dict(op.models) for op in model_ops()}
    for library, found in counts.items():
        for name in {*known, *found}:
            known.setdefault(name, dict.fromkeys(LIBRARIES, 0))[library] = found[name]
    with MODEL_OPS.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, ["op", *LIBRARIES], lineterminator="\n")
        out.writeheader()
        out.writerows({"op": name, **known[name]} for name in sorted(known) if any(known[name].values()))


def main(arguments: list[str]) -> None:
    """Record the models of the libraries that are named and write the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("libraries", nargs="+", choices=LIBRARIES)
    warnings.simplefilter("ignore")
    declared = torch.library.Library("torchvision", "DEF")
    for name in _DECLARED:
        declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    for library in parser.parse_args(arguments).libraries:
        counts: Counter[str] = Counter()
        ran = 0
        for model in LIBRARIES[library]():
            found = _apart(model)
            ran += bool(found)
            counts.update(found)
            print(f"{library} {model.name}: {len(found)} ops", flush=True)
        print(f"{library}: {ran} architectures ran")
        write({library: counts})


if __name__ == "__main__":
    main(sys.argv[1:])
