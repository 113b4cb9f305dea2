"""The change that a written file makes: its own code, applied to the models of the step."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from tensortide.recorder.changes import NotApplicable, Written
from tensortide.recorder.found import Found

Step = Callable[[], Any]

FILE = "<string of a written file>"
"""The name under which the code runs, which is not that of a user's file."""


@contextlib.contextmanager
def written(change: Written, step: Step, found: Found) -> Iterator[Step]:
    """Apply the file to each model that it names. Raises NotApplicable if it does not go with the step."""
    module = types.ModuleType("written")
    exec(compile(change.code, FILE, "exec"), module.__dict__)
    roots = found.roots()
    with contextlib.ExitStack() as stack:
        for prefix in change.prefixes:
            if prefix not in roots:
                raise NotApplicable(f"the step has no module {prefix or '(root)'}")
            try:
                applied = module.apply(roots[prefix], prefix)
            except AttributeError as error:
                raise NotApplicable(f"the step has no such module: {error}") from None
            except TypeError as error:
                raise NotApplicable(str(error)) from None
            stack.callback(applied.remove)
        yield functools.partial(step)
