"""Advice for a step that fails on fake tensors: the other ways to capture it, as messages name them."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Remedy(NamedTuple):
    """Another way to capture a step: ``instead`` is an imperative clause, ``here`` names the tensors that fail."""

    here: str
    instead: str

    @property
    def if_only_here(self) -> str:
        """The advice for an error that may be the program's own."""
        return f"If it only fails on {self.here}, {self.instead}."

    @property
    def sentence(self) -> str:
        """The advice as a sentence of its own."""
        return f"{self.instead[0].upper()}{self.instead[1:]}."


FAKE = Remedy("fake tensors", "capture on real tensors with --real (real=True)")
FAKE_SCRIPT = Remedy("fake tensors", "run the script on real ones, without --fake")


def without_gpu(*, script: bool) -> Remedy:
    """The advice on a pretended GPU: the machine's own if it has one, else its CPU. A script runs on real tensors
    unless it is told otherwise."""
    if torch.cuda.is_available():
        how = "without --device and --machine" + ("" if script else ", with --real (real=True)")
        return Remedy("a pretended GPU", f"capture on this machine's own GPU, {how}")
    how = "with --device cpu (tensortide.capture(..., device='cpu'))"
    return Remedy("a pretended GPU", f"capture the CPU's step, {how}")
