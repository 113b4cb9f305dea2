"""Help: the first screen, made of the table of verbs, and the screen of a verb, made of its requests.

``--help`` has the first paragraph about a verb and the options that most people need, ``--help-all`` everything.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_origin

from rich.text import Text

from tensortide.cli.app import ABOUT, VERBS
from tensortide.cli.console import console, reader_may_leave
from tensortide.cli.verb import options_of
from tensortide.request import Arg, Option
from tensortide.units import parse_bytes, parse_size

if TYPE_CHECKING:
    from cyclopts import App

MOST = 12
"""Options that ``--help`` shows at most; a verb that has no more shows all."""
_LAST = "Output"
"""The heading that is last, whichever option of it comes first."""
_NARROWEST, _WIDEST, _COLUMN = 40, 100, 26
_VALUES: dict[Any, str] = {
    parse_bytes: "BYTES",
    parse_size: "BYTES",
    Path: "FILE",
    int: "N",
    float: "NUMBER",
    str: "TEXT",
}
"""Words for the value of an option, by its reader or its type."""
_OWN = (
    ("tensortide fit -- python train.py", "A script: its command, after --"),
    ("tensortide fit train.py:mlp", "A function that returns the step"),
    ("tensortide capture --list", "The built-in examples, such as gpt2"),
)


class Rows(NamedTuple):
    """Rows of a screen: each of a name and a text under a heading."""

    heading: str
    rows: Sequence[tuple[str, str]]


def print_first() -> None:
    """Print the first screen: a command for each verb that has an example, then the other verbs by group."""
    parts = [
        Rows(
            title, [(f"tensortide {one.example}" if one.example else name, one.summary) for name, one in group.items()]
        )
        for title, group in VERBS.items()
    ]
    parts.insert(1, Rows("Your own model", _OWN))
    last = "tensortide VERB --help: its options; --help-all: every one. tensortide --version"
    _print([ABOUT], parts, last)


def print_verb(app: App, names: Sequence[str], *, whole: bool) -> None:
    """Print the screen of the verb called ``names``, or of a family of verbs; ``whole`` with all of its options."""
    name, command = " ".join(("tensortide", *names)), app.default_command
    family = [one for one in app if not one.startswith("-")]
    every = [] if command is None else every_option(command)
    shown = every if whole else common(every)
    usage = [] if command is None else [f"Usage: {' '.join([name, *_usage(every)])}"]
    usage += [f"{' ' * 7 if usage else 'Usage: '}{name} VERB ..."] * bool(family)
    paragraphs = ((command.__doc__ if command else app.help) or "").split("\n\n")
    parts = [Rows(title, [*map(_row, some)]) for title, some in grouped(shown).items()]
    if shown and not whole:
        parts = [Rows("Options", [row for part in parts for row in part.rows])]
    if family:
        parts.append(Rows(f"Verbs: {name} VERB --help", [(one, _summary(app[one])) for one in family]))
    left = len(every) - len(shown)
    last = f"{left} more options: {name} --help-all" if left else ""
    _print(["\n".join(usage), *(paragraphs if not left else paragraphs[:1])], parts, last)


def every_option(command: Any) -> list[Option]:
    """The options of a command, without those that are hidden, in the order of their headings."""
    found = (one for one in options_of(command) if not one.opt.hidden)
    return [one for some in grouped(found).values() for one in some]


def common(every: Sequence[Option]) -> list[Option]:
    """The options that ``--help`` shows: all, if they are few."""
    return [one for one in every if len(every) <= MOST or is_common(one)]


def is_common(one: Option) -> bool:
    """True for what most people need, or must give."""
    return one.opt.common or one.default is MISSING or isinstance(one.opt, Arg)


def grouped(every: Iterable[Option]) -> dict[str, list[Option]]:
    """Options by heading, the output last."""
    found: dict[str, list[Option]] = {}
    for one in every:
        found.setdefault("Arguments" if isinstance(one.opt, Arg) else one.group, []).append(one)
    return dict(sorted(found.items(), key=lambda pair: pair[0] == _LAST))


def value_of(one: Option) -> str:
    """The word for its value: ``FILE``, ``{a,b}``; nothing if it is on or off."""
    if one.opt.value or one.kinds == (bool,):
        return one.opt.value
    if one.opt.read is not None:
        return _VALUES.get(one.opt.read) or _VALUES.get(one.kinds[0], one.kinds[0].__name__.upper())
    kinds = [kind for kind in one.kinds if kind is not NoneType]
    words = [str(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    plain = [_VALUES[kind] for kind in kinds if kind in _VALUES]
    return "|".join([*plain, *words]) if plain else f"{{{','.join(words)}}}"


def about(one: Option) -> str:
    """The text of an option: its purpose, its default, and that it may be repeated."""
    text, default = one.opt.help, one.default
    if default is True or (isinstance(default, str | int | float) and default is not False and default != ""):
        told = "default" in text
        shown = "on" if default is True else f"{default:g}" if isinstance(default, float) else default
        text = text if told else f"{text.removesuffix('.')} (default: {shown})."
    elif default is MISSING and one.names:
        text += " Required."
    return f"{text} Repeatable." if one.is_tuple and one.names and "several" not in text else text


def _row(one: Option) -> tuple[str, str]:
    if isinstance(one.opt, Arg):
        return f"{one.name}{'...' * one.is_tuple}", about(one)
    names = [*one.names, *([one.names[0].replace("--", "--no-", 1)] if one.default is True else [])]
    return f"{', '.join(names)} {value_of(one)}".strip(), about(one)


def _usage(every: Sequence[Option]) -> Iterator[str]:
    for one in every:
        must = one.default is MISSING
        if isinstance(one.opt, Arg):
            name = _row(one)[0]
            yield name if must else f"[{name}]"
        elif must:
            yield f"{one.names[0]} {value_of(one)}"
    yield "[OPTIONS]"


def _summary(app: App) -> str:
    """The first sentence about a verb."""
    text = (app.default_command.__doc__ if app.default_command else app.help) or ""
    return re.split(r"(?<=\.) (?=[A-Z-])|\n", text, maxsplit=1)[0]


def _print(paragraphs: Sequence[str], parts: Sequence[Rows], last: str) -> None:
    """Print paragraphs, then parts, with a blank line before each, and a last line; headings in bold."""
    screen = console()
    width = max(_NARROWEST, min(screen.width, _WIDEST))
    lines = [Text("\n".join(_usage_lines(paragraphs[0], width)), "bold")]
    lines += [Text(_filled(text, width)) for text in paragraphs[1:]]
    for part in parts:
        lines.append(Text("\n".join([part.heading, *_columns(part.rows, width)])))
        lines[-1].stylize("bold", 0, len(part.heading))
    with reader_may_leave():
        screen.print(Text("\n\n").join([*lines, Text(_filled(last, width))] if last else lines), soft_wrap=True)


def _usage_lines(text: str, width: int) -> Iterator[str]:
    for line in text.split("\n"):
        yield from textwrap.wrap(line, width, subsequent_indent=" " * 7, break_on_hyphens=False)


def _filled(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False)


def _columns(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Rows as two columns; a name that is too long has a line of its own."""
    room = max(len(name) for name, _ in rows)
    room = room if room + 2 + max(len(text) for _, text in rows) < width - 2 else min(room, _COLUMN)
    for name, text in rows:
        first, *more = textwrap.wrap(text, width - room - 4, break_on_hyphens=False, break_long_words=False) or [""]
        if len(name) > room:
            yield from (f"  {name}", f"  {'':<{room}}  {first}")
        else:
            yield f"  {name:<{room}}  {first}".rstrip()
        yield from (f"  {'':<{room}}  {line}" for line in more)
