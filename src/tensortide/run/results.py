"""Results of steps, to be compared bit for bit: what the last step returned, every tensor that the step reaches, and
the state of the random generators."""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
import sys
import types
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from tensortide.recorder.reachable import ATOMS, is_foreign, is_visited_object, named_globals
from tensortide.recorder.torch_compat import pytree

_RETURNED = "the returned value"
_GENERATORS = "the random generators"
_OWN = ("_parameters", "_buffers", "_modules")
"""Namespaces of a module, which have no part in the names of its tensors."""


@dataclass(frozen=True, slots=True)
class Results:
    """Digests of tensors by name, of numbers that a step returned, and of generators; how large the tensors are, and
    how many were left out, whose bytes cannot be read (nested and sparse ones, those of subclasses)."""

    digests: Mapping[str, bytes]
    compared_tensors: int
    compared_bytes: int
    left_out: int

    def difference(self, other: Results) -> str:
        """Name the first result that is not the same, bit for bit; empty: there is none."""
        names = dict.fromkeys((*self.digests, *other.digests))
        return next((name for name in names if self.digests.get(name) != other.digests.get(name)), "")


NONE = Results({}, 0, 0, 0)
"""Results that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Results of steps under a budget beside those of as many ordinary ones that started alike. ``equal`` is None where
    they cannot be compared, and ``reason`` says why. ``first_difference``: the first result that differs."""

    equal: bool | None
    compared_steps: int
    compared: Results
    first_difference: str = ""
    reason: str = ""

    @property
    def results(self) -> Literal["equal", "differ", "not compared"]:
        """``equal`` in a word."""
        return "not compared" if self.equal is None else "equal" if self.equal else "differ"


def results_of(step: Any, returned: Any = None) -> Results:
    """Digest the results of ``step``, the last call of which ``returned`` this."""
    digests, tensors, nbytes, left_out = dict[str, bytes](), 0, 0, 0
    for path, value in (*_found(returned, _RETURNED), *_found(step, "")):
        name = next(one for n in itertools.count(1) if (one := path if n == 1 else f"{path} ({n})") not in digests)
        if not isinstance(value, torch.Tensor):
            if path.startswith(_RETURNED):
                digests[name] = repr(value).encode()
            continue
        try:
            digests[name] = _digest(value)
        except (NotImplementedError, RuntimeError, TypeError):
            left_out += 1
        else:
            tensors, nbytes = tensors + 1, nbytes + value.numel() * value.element_size()
    digests[_GENERATORS] = Generators.now().digest()
    return Results(digests, tensors, nbytes, left_out)


def detached(returned: Any) -> Any:
    """Return what a step returned without the autograd graph, which may hold all that the step computed."""
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, returned)


def _found(root: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and the numbers that ``root`` leads to, with their names, each tensor once."""
    seen: dict[int, Any] = {}
    pending = [(path, root)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, bool | int | float | complex):
            yield path, value
        elif id(value) not in seen and not isinstance(value, ATOMS):
            seen[id(value)] = value
            if isinstance(value, torch.Tensor):
                yield path, value
                inside = [("grad", value.grad)] if value.is_leaf and value.grad is not None else []
            else:
                inside = list(_inside(value))
            pending += [(_join(path, name), one) for name, one in reversed(inside)]


def _join(path: str, name: str) -> str:
    if name in _OWN or not name:
        return path
    return path + name if name.startswith("[") or not path else f"{path}.{name}"


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is in ``value``, an object of any kind, by name."""
    if isinstance(value, dict):
        yield from ((key if isinstance(key, str) else f"[{at}]", item) for at, (key, item) in enumerate(value.items()))
    elif isinstance(value, list | tuple | deque):
        yield from ((f"[{at}]", item) for at, item in enumerate(value))
    elif isinstance(value, functools.partial):
        yield from (("", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, types.MethodType):
        yield from (("", value.__self__), ("", value.__func__))
    elif isinstance(value, types.FunctionType):
        if not is_foreign(str(value.__module__)):
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                if cell != types.CellType():
                    yield name, cell.cell_contents
            yield "", value.__defaults__
            yield from ((name, space[name]) for space, name in named_globals(value) if name in space)
    elif not isinstance(value, type) and is_visited_object(value):
        yield "", getattr(value, "__dict__", None)


def _digest(tensor: torch.Tensor) -> bytes:
    """Digest of a tensor's bits, with its dtype and shape."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    raw: Any = plain.view(torch.uint8).cpu().numpy() if plain.numel() else b""
    head = f"{tensor.dtype}{list(tensor.shape)}".encode()
    return hashlib.blake2b(raw, digest_size=16, key=hashlib.sha256(head).digest()).digest()


@dataclass(frozen=True, slots=True)
class Generators:
    """State of the random generators of PyTorch, Python and NumPy; none of it is a tensor, which would count."""

    cpu: bytes
    cuda: tuple[bytes, ...]
    python: tuple[Any, ...]
    numpy: tuple[Any, ...] | None

    @classmethod
    def now(cls) -> Generators:
        """Read their state."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        numpy_random: Any = sys.modules.get("numpy.random")
        return cls(
            torch.get_rng_state().numpy().tobytes(),
            tuple(state.numpy().tobytes() for state in cuda),
            random.getstate(),
            None if numpy_random is None else numpy_random.get_state(),
        )

    def rewind(self) -> None:
        """Put them back into this state."""
        torch.set_rng_state(_state(self.cpu))
        if self.cuda:
            torch.cuda.set_rng_state_all([_state(one) for one in self.cuda])
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)

    def digest(self) -> bytes:
        """Digest of all of it."""
        head, words, *rest = self.numpy or ("", b"")
        parts = [self.cpu, *self.cuda, repr(self.python).encode(), repr((head, rest)).encode(), bytes(words)]
        return hashlib.sha256(b"".join(parts)).digest()


def _state(state: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
