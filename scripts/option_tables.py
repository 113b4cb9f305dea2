"""Tables of the options of every verb, as its requests have them: docs/options.md.

python -m scripts.option_tables    # write it anew
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from cyclopts import App

from tensortide.cli.app import VERBS, application
from tensortide.cli.help import is_common
from tensortide.cli.verb import requests_of
from tensortide.request import Option, Request, options
from tensortide.units import parse_bytes, parse_size
from tensortide.write import write_file

PAGE = Path(__file__).resolve().parent.parent / "docs/options.md"
_HEAD = """# Options of every verb

`--help` after a verb shows those in bold, which most people need (of a verb with few options all), and `--help-all`
every one. A table is that of a *request*, a frozen dataclass, which stands above it with the function that answers it.
Its options are its fields, by the name after `--` unless another is given in parentheses.

## Asking from Python

The command line makes requests of what is typed, and asks the functions that answer them. Python does the same:

```python
from tensortide.errors import RequestError
from tensortide.studies.fit.request import FitRequest, answer
from tensortide.targets.requests import CaptureRequest

capture = CaptureRequest(machines=("l4", "h100-sxm"))  # --machine l4 --machine h100-sxm
asked = FitRequest(target="step.tide", memory="20GiB", capture=capture)
assert asked == FitRequest(target="step.tide", memory=20 << 30, capture=capture)  # what the text means does as well
for found in answer(asked).each:
    print(found.subject.row.name, found.fits)  # L4 fits, then H100-SXM-80GB fits

try:
    FitRequest(target="step.tide", memory=0)
except RequestError as error:
    print(error)  # --memory takes a whole number from 1, not 0
```

- A text means what it does where it is typed; Python also takes its meaning, and a tuple for an option that takes
  several, which is repeated on the command line.
- Options that several requests share are in a request of their own, which is a field of each (`capture`) and stands in
  parentheses beside its class. `Files` and `OutputRequest` are of the command line alone.
- A value out of range, and options that exclude each other or lack another, are a RequestError as soon as the request
  is made. What depends on the target is one when it is answered. Errors have the texts of the command line, and the
  status with which it ends is their `status` ([statuses](statuses.md)).
- Progress is silent. `answer(asked, print)` shows it; of a search `answer(asked, Search(print, stopped))`, which also
  ends once `stopped()` is true (`tensortide.progress.Search`).

"""
_READ: dict[Callable[[Any], Any], str] = {
    parse_bytes: "bytes, as 8GiB",
    parse_size: "bytes, as 8GiB",
    int: "a whole number",
}
"""What texts are that a function reads; of others: a text."""


def page() -> str:
    """The page of all verbs. Requests of several verbs have tables of their own, at its end."""
    found = {path: fields(command) for path, command in every_command()}
    uses = Counter(kind for kinds in found.values() for kind in kinds)
    shared = [kind for kind, count in uses.items() if count > 1]
    parts = [_section(path, kinds, shared) for path, kinds in found.items()]
    parts += [f"## {kind.__name__}\n\n{_summary(kind)}\n\n{_table(kind)}" for kind in shared]
    return _HEAD + "\n".join(parts)


def requests(command: Any) -> list[type[Request]]:
    """The requests of a command that have options to show, those inside among them."""
    return [kind for kind in fields(command) if own_options(kind)]


def fields(command: Any) -> dict[type[Request], str]:
    """The requests of a command, each with its field in the outer one, as ``step.capture``. Of those inside, the ones
    that have options to show."""
    found = [pair for top in requests_of(command).values() for pair in _with_inner(top)]
    return {kind: field for kind, field in found if own_options(kind) or not field}


def _with_inner(kind: type[Request], field: str = "") -> Iterator[tuple[type[Request], str]]:
    yield kind, field
    hints = get_type_hints(kind)
    for one in dataclasses.fields(kind):
        hint = hints[one.name]
        if isinstance(hint, type) and issubclass(hint, Request):
            yield from _with_inner(hint, f"{field}.{one.name}".strip("."))


def own_options(kind: type[Request]) -> list[Option]:
    """The options of a request that are shown, without those of the requests inside."""
    return [one for one in options(kind) if len(one.path) == 1 and not one.opt.hidden]


def every_command() -> Iterator[tuple[tuple[str, ...], Any]]:
    """The command of every verb, and of every verb of its own, with their names."""
    names = [name for verbs in VERBS.values() for name in verbs]
    app = application(names)
    for name in names:
        yield from _commands(app[name], (name,))


def _commands(app: App, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if app.default_command is not None:
        yield path, app.default_command
    for name in app:
        if not name.startswith("-"):
            yield from _commands(app[name], (*path, name))


def _section(path: tuple[str, ...], kinds: Mapping[type[Request], str], shared: Sequence[type[Request]]) -> str:
    own = [f"{_summary(kind, field)}\n\n{_table(kind)}".rstrip() for kind, field in kinds.items() if kind not in shared]
    also = [f"[{kind.__name__}](#{kind.__name__.lower()}){_code(kinds[kind])}" for kind in kinds if kind in shared]
    with_those = [f"With the options of {', '.join(also)}."] if also else []
    return "\n\n".join([f"## {' '.join(path)}", *own, *with_those]) + "\n"


def _summary(kind: type[Request], field: str = "") -> str:
    """The class, its field in the outer request, the function that answers it, and what it is."""
    about = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
    name = f"`{kind.__module__}.{kind.__qualname__}`{_code(field)}"
    answers = [f", answered by `{one}`" for one in _answers(kind)]
    return f"{name}{''.join(answers)}: {' '.join(about.split())}".replace("``", "`")


def _answers(kind: type[Request]) -> Iterator[str]:
    """The functions beside ``kind`` that answer it, by their first parameter."""
    own = {one.__name__ for one in kind.__mro__}
    for name, function in vars(importlib.import_module(kind.__module__)).items():
        if name.startswith("answer") and function.__module__ == kind.__module__:
            first = next(iter(inspect.signature(function).parameters.values()))
            if first.annotation in own:
                yield name


def _code(field: str) -> str:
    return f" (`{field}`)" if field else ""


def _table(kind: type[Request]) -> str:
    rows = [*map(_row, own_options(kind))]
    return "\n".join(["| option | takes | default | |", "|---|---|---|---|", *rows, ""]) if rows else ""


def _row(one: Option) -> str:
    name = ", ".join(f"`{name}`" for name in one.names) or f"`{one.name}`"
    name = f"**{name}**" if is_common(one) else name
    usual = one.names[0].removeprefix("--").replace("-", "_") if one.names else one.field.name
    if usual != one.field.name:
        name += f" (`{one.field.name}`)"
    return f"| {name} | {_takes(one)} | {_default(one)} | {_cell(one.opt.help)} |"


def _takes(one: Option) -> str:
    """What it takes: nothing if it is on or off."""
    what = one.takes if one.opt.read is None else _READ.get(one.opt.read, "a text")
    parts = [] if one.kinds == (bool,) else [_cell(what)]
    parts += ["several"] * one.is_tuple
    parts += [f"of a {' or a '.join(one.opt.of)}"] * bool(one.opt.of)
    return ", ".join(parts)


def _default(one: Option) -> str:
    """The default, if it is a number, a word or several: nothing for what is off."""
    value = one.default
    if value is dataclasses.MISSING:
        return "must be given"
    if isinstance(value, bool):
        return "on" * value
    values = value if isinstance(value, tuple) else (value,)
    return " ".join(f"`{part}`" for part in values if isinstance(part, str | int | float) and part != "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write the page."""
    write_file(PAGE, page())


if __name__ == "__main__":
    main()
