"""A request with an option of every kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tensortide.request import Arg, Opt, Request, either, exclusive, needs
from tensortide.units import parse_bytes


@dataclass(frozen=True, kw_only=True)
class Inner(Request):
    """How the toy is measured."""

    GROUP = "Measuring"

    clock: Annotated[Literal["wall", "thread"], Opt("Which clock.")] = "wall"
    sizes: Annotated[tuple[int, ...], Opt("Sizes to try.", "--size", least=1, most=1 << 40)] = ()
    limit: Annotated[float | None, Opt("Seconds.", above=0, infinite=True)] = None
    secret: Annotated[bool, Opt("Nobody asks for it.", hidden=True)] = False
    unasked: int = 3
    """No option."""

    RULES = (needs("limit", "sizes", clock=("thread",), why="wall time is not limited"),)


@dataclass(frozen=True, kw_only=True)
class Toy(Request):
    """What is asked of a toy."""

    GROUP = "The toy"

    target: Annotated[str, Arg("A target.")]
    others: Annotated[tuple[str, ...], Arg("Further targets.")] = ()
    budget: Annotated[int | None, Opt("Memory: 8GiB.", read=parse_bytes, least=1)] = None
    budgets: Annotated[tuple[int, ...], Opt("Several.", read=parse_bytes)] = ()
    ratio: Annotated[float, Opt("A ratio; by default half.", "--ratio -r", least=0, most=1)] = 0.5
    change: Annotated[float, Opt("A change.")] = 0.0
    steps: Annotated[int, Opt("Steps to measure.")] = 9
    count: Annotated[int | Literal["auto"], Opt("How many, or auto.", least=2)] = "auto"
    inner: Inner = Inner()
    listed: Annotated[bool, Opt("List them.", "--list", group="Others")] = False
    source: Annotated[Path | None, Opt("Where it is read.")] = None
    output: Annotated[Path | None, Opt("Where it goes.", "--output -o", writes=True)] = None
    parts: Annotated[tuple[Path, ...], Opt("Where parts go.", "--part", writes=True)] = ()

    RULES = (exclusive("budget", "budgets", "listed"),)


@dataclass(frozen=True, kw_only=True)
class Chosen(Request):
    """One of two."""

    left: Annotated[int | None, Opt("Left.")] = None
    right: Annotated[str | None, Opt("Right.")] = None

    RULES = (either("left", "right", why="there are two ways"),)


@dataclass(frozen=True, kw_only=True)
class Made(Request):
    """Defaults that are made for each."""

    names: Annotated[tuple[str, ...], Opt("Names.")] = field(default_factory=lambda: ("a", "b"))
