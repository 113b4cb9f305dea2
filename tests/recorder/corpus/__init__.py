"""Ordinary workloads as people write them: what a capture should take without a word from the user.

Every public function of the modules here is one. ``python -m tests.recorder.corpus`` captures each and says how that
went.
"""

from __future__ import annotations

import inspect

from tests.recorder.corpus import distributions, hugging_face, modules, shapes, training
from tests.recorder.steps import Workload

CORPUS: dict[str, Workload] = {
    name: made
    for theme in (training, shapes, distributions, modules)
    for name, made in inspect.getmembers(theme, inspect.isfunction)
    if made.__module__ == theme.__name__
} | hugging_face.WORKLOADS
