"""The place of ops of a graph under construction: phase, module, line, device, arm of a conditional."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tensortide.graph.handles import phase_of
from tensortide.graph.model import OUTSIDE, Branch, Module, Phase, Source


class Places:
    """The place of the ops, and the device of the storages, that are added next."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._modules: dict[Module, int] = {}
        self._sources: dict[Source, int] = {}
        self._branches: list[Branch] = []
        self._conditionals = itertools.count()
        self._phase = Phase.FORWARD
        self._recompute = False
        self._module = self._source = self._branch = OUTSIDE

    @contextmanager
    def module(self, path: str, kind: str = "") -> Iterator[None]:
        """The ops in this block belong to the module of dotted ``path``."""
        before, self._module = self._module, self._modules.setdefault(Module(path, kind), len(self._modules))
        try:
            yield
        finally:
            self._module = before

    @contextmanager
    def phase(self, phase: Phase | str, *, recompute: bool = False) -> Iterator[None]:
        """The ops in this block run in ``phase``; ``recompute``: they repeat work of the forward pass."""
        before = self._phase, self._recompute
        self._phase, self._recompute = phase_of(phase), recompute
        try:
            yield
        finally:
            self._phase, self._recompute = before

    @contextmanager
    def source(self, file: str, line: int, function: str = "", code: str = "") -> Iterator[None]:
        """The ops in this block come from this line of the user's code."""
        source = Source(file, line, function, code)
        before, self._source = self._source, self._sources.setdefault(source, len(self._sources))
        try:
            yield
        finally:
            self._source = before

    @contextmanager
    def on(self, device: str) -> Iterator[None]:
        """The storages that this block adds are on ``device``: ``cuda:1``."""
        before, self.device = self.device, device
        try:
            yield
        finally:
            self.device = before

    def conditional(self) -> Callable[[int], AbstractContextManager[None]]:
        """Start a conditional whose predicate is unknown: ``with arm(0): ...``, ``with arm(1): ...``."""
        number = next(self._conditionals)

        @contextmanager
        def arm(which: int) -> Iterator[None]:
            before, self._branch = self._branch, len(self._branches)
            self._branches.append(Branch(number, which, before))
            try:
                yield
            finally:
                self._branch = before

        return arm
