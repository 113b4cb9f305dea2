"""Choice of a strategy by its text: a built-in policy, a policy from a Python file, or a plan.

``lru`` is built in, ``mine.py:Mine`` and ``package.module:name`` are Python objects, anything else with a path
separator or a suffix is the file of a plan.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tensortide.errors import PlanError, TensortideError
from tensortide.plans.model import Plan, load_plan
from tensortide.plans.remat import policies
from tensortide.plans.remat.policies import POLICIES, Heuristic, Policy, State
from tensortide.python_object import failure, is_path, load_object, names_object, near


@dataclass
class _Own:
    """A policy of the user's, called what names it."""

    name: str
    of: Any

    def begin(self) -> None:
        if hasattr(self.of, "begin"):
            _called(self.name, self.of.begin)

    def choose(self, pool: Sequence[int], state: State) -> tuple[int, int]:
        return _chosen(self.name, self.of, pool, state)


@dataclass(frozen=True)
class _OwnHeuristic(Heuristic):
    """A Heuristic of a class of the user's, called what names it."""

    of: Any = None

    def choose(self, pool: Sequence[int], state: State) -> tuple[int, int]:
        return _chosen(self.name, self.of, pool, state)

    def cost(self, storage: int, state: State) -> float:
        cost: float = _called(self.name, partial(self.of.cost, storage, state))
        return cost


def _chosen(name: str, of: Any, pool: Sequence[int], state: State) -> tuple[int, int]:
    """The choice of the user's ``of``. Raises PlanError if it is none."""
    found = _called(name, partial(of.choose, pool, state))
    match found:
        case (int(storage), int()) if storage in pool:
            return storage, found[1]
    raise PlanError(
        f"{name} chose {found!r}: choose(pool, state) returns a storage of the pool and how many it looked at"
    )


def _called(name: str, call: Callable[[], Any]) -> Any:
    """The result of ``call``, the user's. Raises PlanError with the user's line for whatever it raises."""
    try:
        return call()
    except TensortideError:
        raise
    except Exception as error:
        raise PlanError(failure(name, error)) from error


def decision(given: str | os.PathLike[str] | Policy | Plan) -> Policy | Plan:
    """Return the policy or the plan that ``given`` is, names or has in its file.

    Raises PlanError for a name that is none and for what has no ``choose``, WorkloadError for a Python object that
    cannot be loaded, PlanFileError for a file that is no plan.
    """
    if not isinstance(given, str | os.PathLike):
        return given
    text = os.fspath(given)
    if isinstance(given, os.PathLike):
        return load_plan(text)
    try:
        return policies.policy(text)
    except PlanError:
        if _is_own(text):
            return _own(text)
        if is_path(text):
            return load_plan(text)
        raise PlanError(
            f"there is no policy {text!r}{near(text, POLICIES)}\n"
            "One of your own is FILE.py:NAME; a plan to be followed is the name of its file (.json)."
        ) from None


def policy(name: str) -> Policy:
    """Return the policy that ``name`` names. Raises as ``decision`` does, and PlanError for a plan."""
    found = decision(name)
    if isinstance(found, Plan):
        raise PlanError(f"{name} is a plan, which was made for one budget: give policies")
    return found


def source_digest(name: str) -> str:
    """Digest of the file that the policy ``name`` is defined in; empty for a built-in one."""
    if not _is_own(name):
        return ""
    place = name.rpartition(":")[0]
    spec = None if place.endswith(".py") else importlib.util.find_spec(place)
    file = Path(place if spec is None or spec.origin is None else spec.origin)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _is_own(text: str) -> bool:
    return names_object(text) and text.partition(":")[0] not in POLICIES


def _own(text: str) -> Policy:
    """Load a policy: an object with ``choose``, or a class or function that makes one."""
    found = load_object(text)
    if isinstance(found, type) or (callable(found) and not hasattr(found, "choose")):
        with contextlib.suppress(ValueError):  # it has no signature
            try:
                inspect.signature(found).bind()
            except TypeError as error:
                raise PlanError(f"{text} cannot be made without arguments: {error}") from error
        found = _called(text, found)
    if not callable(getattr(found, "choose", None)):
        raise PlanError(f"{text} is no policy: it has no choose(pool, state) that returns a storage out of the pool")
    if not isinstance(found, Heuristic):
        return _Own(text, found)
    if type(found) is Heuristic:
        return dataclasses.replace(found, name=text)
    return _OwnHeuristic(text, found.work, found.size, found.staleness, found)
