"""The command of a script in what is typed: after ``--``, or where ``--`` is forgotten. It is understood if it can mean
one thing only; else the exact command is said."""

from __future__ import annotations

import logging
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tensortide.errors import RequestError, TensortideError

if TYPE_CHECKING:
    import ast

LOG = logging.getLogger("tensortide")
ALIKE = 0.75
"""Likeness of two options from which on one may be meant where the other is typed."""
_SYNONYMS = {**dict.fromkeys(("--gpu", "--gpus", "--card"), "--machine"), "--option": "--grid"}
"""Options under the names that other programs, or other verbs, have for them."""
_FUNCTION = re.compile(r"(.+\.py):(\w+)")


class _TypedVerb(NamedTuple):
    """A verb as it is typed. ``options`` are its names of options, each with whether a value follows; ``several`` is
    true if it takes several targets, ``scripts`` if they may be scripts."""

    words: tuple[str, ...]
    options: Mapping[str, bool]
    several: bool
    scripts: bool


class _Function(NamedTuple):
    """A function of a script that is named as a target: its place among the words, the file, its name, and the tree of
    the file."""

    place: int
    file: str
    name: str
    tree: ast.Module


class _Divided(NamedTuple):
    """The words that follow a script: options of ours, and its own. ``doubt`` says of one that it may be of both."""

    ours: list[str]
    theirs: list[str]
    doubt: str


def with_script(typed: Sequence[str]) -> list[str]:
    """Join the command of a script into one target, after ``--``.

    Raises RequestError where a script is meant and what is typed may mean something else: it says what to type.
    """
    from tensortide.recorder.script_command import script_text

    place = typed.index("--") if "--" in typed else len(typed)
    own, command = _with_negative_values(typed[:place]), list(typed[place + 1 :])
    if place < len(typed):
        if not own:
            raise RequestError(f"a verb is missing. Write\n  {_shown(['report'], command or ['train.py'])}")
        verb = _verb(own)
        if verb is not None:
            _check_verb(own, command, verb)
        return [*own, "--", script_text(command)]
    if own and _begins(own[0]):
        raise RequestError(
            f"{own[0]} stands where a verb belongs. Write\n  {_shown(['report'], _with_interpreter(own))}"
        )
    if any(_begins(word) or _FUNCTION.fullmatch(word) for word in own) and (verb := _verb(own)) is not None:
        return _understood(own, verb)
    return own


def _with_negative_values(typed: Sequence[str]) -> list[str]:
    """``typed`` with each value that begins with a minus sign and a digit joined to its option.

    Examples:
        >>> _with_negative_values(["time", "mlp", "--machine", "-3xh100"])
        ['time', 'mlp', '--machine=-3xh100']
    """
    own: list[str] = []
    for text in typed:
        if re.match(r"-[0-9]", text) and own and re.fullmatch(r"--[a-z-]+", own[-1]):
            own[-1] += f"={text}"
        else:
            own.append(text)
    return own


def as_script(typed: Sequence[str], error: TensortideError) -> str:
    """Advice on an ``error`` of a function that has ended the program, if it is one of a script: the command."""
    own = list(typed[: typed.index("--")] if "--" in typed else typed)
    if not isinstance(error.__cause__, SystemExit) or (verb := _verb(own)) is None:
        return ""
    found = _function(own, verb)
    return "" if found is None else f"\nAs a script it is\n  {_instead(own, found)}"


def _understood(own: list[str], verb: _TypedVerb) -> list[str]:
    """``own`` with the ``--`` that is forgotten, if one is."""
    from tensortide.cli.verb import HELP_FLAGS
    from tensortide.importers.door import recognize
    from tensortide.recorder.script_command import find_script, script_text

    place = _place(own, verb)
    if place is None:
        _check_function(own, verb)
        return own
    before, command = own[:place], own[place:]
    if command[0].endswith(".py"):
        # a file that is missing is the error of what reads targets
        if not Path(command[0]).is_file() or recognize(Path(command[0])) is not None:
            return own
        _check_file(before, command, verb)
    script = find_script(script_text(command))
    if script is None:
        return own
    if verb.several and not any(word in HELP_FLAGS for word in own):
        _check_single(own, verb)
    head = command[: len(command) - len(script.arguments)]
    found = _divided(head, script.arguments, verb, _tree(script.file))
    if found.doubt:
        raise RequestError(f"{found.doubt} Write{_commands(before, head, script.arguments, found)}")
    words, scripts = [*before, *found.ours], [*head, *found.theirs]
    _check_verb(words, scripts, verb)
    if any(word in HELP_FLAGS for word in words):
        asked = shlex.join([*_with_interpreter(scripts), "--help"])
        LOG.info("this is the help of tensortide %s; %s is that of the script", " ".join(verb.words), asked)
    elif "--quiet" not in words:
        LOG.info("%s is taken as a script: %s", script.name, _shown(words, _with_interpreter(scripts)))
    return [*words, "--", script_text(scripts)]


def _divided(head: Sequence[str], arguments: Sequence[str], verb: _TypedVerb, tree: ast.Module | None) -> _Divided:
    """The words that follow a script, whose command begins with ``head``."""
    from tensortide.cli.verb import HELP_FLAGS
    from tensortide.recorder.suggest import options_in

    declared = frozenset[str]() if tree is None else options_in(tree)
    ours: list[str] = []
    theirs: list[str] = []
    doubt, called = "", f"tensortide {' '.join(verb.words)}"
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, given, value = word.partition("=")
        known = name if name in verb.options or name in declared else likely(name, verb.options)
        if known not in verb.options:
            theirs.append(word)
            continue
        ours.append(f"{known}{given}{value}")
        if verb.options[known] and not given and words:
            ours.append(words.pop(0))
        if known != name:
            doubt = doubt or f"Unknown option: {name}. Did you mean {known}, or is it one of {head[-1]}?"
        # a script that declares its options elsewhere may have this one
        elif name not in HELP_FLAGS and (name in declared or not declared):
            doubt = doubt or f"{name} may be an option of {called} or of {head[-1]}."
    return _Divided(ours, theirs, doubt)


def _check_file(before: list[str], command: list[str], verb: _TypedVerb) -> None:
    """Raise WorkloadError if the Python file that begins ``command`` may not be meant as a script."""
    from tensortide.errors import WorkloadError
    from tensortide.recorder.suggest import commands, parsed, runs_alone, workloads

    tree = parsed(command[0])
    if not runs_alone(tree) or any(workloads(tree)):
        arguments = f" {shlex.join(command[1:])}" if command[1:] else ""
        raise WorkloadError(commands(command[0], _shown(before or verb.words, None), arguments))


def _check_function(own: list[str], verb: _TypedVerb) -> None:
    """Say what to type in place of a function that is a script's. Raises RequestError if it reads the command line, or
    has parameters that nobody sets."""
    from tensortide.recorder.suggest import loops_over_steps, missing, reads_arguments

    if (found := _function(own, verb)) is None:
        return
    target, after = own[found.place], own[found.place + 1 :]
    instead = _commands(own[: found.place], [found.file], after, _divided([found.file], after, verb, found.tree))
    if reads_arguments(found.tree, found.name):
        raise RequestError(f"{target} reads the arguments of a script. Write{instead}")
    unset = [name for name in missing(found.tree, found.name) if not any(word.startswith(f"{name}=") for word in own)]
    if unset:
        said = f"{target} needs a value for: {', '.join(unset)}.\nGive it with --set {unset[0]}=VALUE, or record"
        raise RequestError(f"{said} a step of the script: write{instead}")
    if "--quiet" not in own and loops_over_steps(found.tree, found.name):
        alone = _instead(own, found)
        LOG.info("%s trains in a loop, all of whose steps count. For one of them: %s", target, alone)


def _check_verb(own: Sequence[str], command: Sequence[str], verb: _TypedVerb) -> None:
    """Raise TensortideError if ``verb`` takes no script, or not the several ones of ``command``."""
    from tensortide.cli.verb import HELP_FLAGS
    from tensortide.recorder.script_command import script_text
    from tensortide.targets.opening import step_of

    if any(word in HELP_FLAGS for word in own):
        return
    if not verb.scripts:
        step_of(script_text(command), " ".join(verb.words))
    starts = [at + 1 for at, word in enumerate(command[:-1]) if word == "--" and _begins(command[at + 1])]
    if verb.several and starts:
        ends = [*(at - 1 for at in starts), len(command)]
        scripts = [list(command[at:end]) for at, end in zip((0, *starts), ends, strict=True)]
        raise RequestError(_captured_first([*own, *[""] * len(scripts)], scripts, verb))


def _check_single(own: Sequence[str], verb: _TypedVerb) -> None:
    """Raise RequestError for a script among several targets: the commands for it."""
    from tensortide.recorder.script_command import find_script, script_text

    words, left, scripts = list(own[len(verb.words) :]), list[str](), list[list[str]]()
    others = 0
    while words:
        word = words.pop(0)
        if _begins(word) and (script := find_script(script_text([word, *words]))) is not None:
            head = len(words) - len(script.arguments)
            scripts.append([word, *words[:head]])
            left.append("")
            del words[:head]
            continue
        name, given, _ = word.partition("=")
        theirs = word.startswith("-") and name not in verb.options and bool(scripts)
        (scripts[-1] if theirs else left).append(word)
        others += not word.startswith("-")
        # an option of a script may have a value or none
        valued = theirs and not given and not (words and (words[0].startswith("-") or _begins(words[0])))
        if words and (valued or (verb.options.get(name) and not given)):
            (scripts[-1] if theirs else left).append(words.pop(0))
    if len(scripts) + others > 1:
        raise RequestError(_captured_first([*verb.words, *left], scripts, verb))


def _captured_first(own: Sequence[str], scripts: Sequence[Sequence[str]], verb: _TypedVerb) -> str:
    """The commands for scripts among several targets, for each of which ``own`` has an empty word."""
    from tensortide.recorder.script_command import find_script, script_text
    from tensortide.request import options
    from tensortide.targets.requests import CaptureRequest

    own_options = (one for one in options(CaptureRequest) if len(one.path) == 1 and one.field.name != "set")
    moved = {name for one in own_options for name in one.names}
    words, left, capture = list(own), list[str](), list[str]()
    while words:
        name, given, _ = words[0].partition("=")
        option = [words.pop(0) for _ in range(2 if verb.options.get(name) and not given else 1) if words]
        capture += option if name in moved else []
        left += option if name not in moved or name == "--machine" else []
    said: list[str] = []
    for command in scripts:
        script = find_script(script_text(command))
        stem = "step" if script is None else Path(script.file).stem
        file = f"{stem}.tide" if f"{stem}.tide" not in left else f"{stem}-{len(said) + 1}.tide"
        left[left.index("")] = file
        said.append(_shown(["capture", "-o", file, *capture], _with_interpreter(command)))
    what = f"a script stands among several targets of {' '.join(verb.words)}: save its step to a file first"
    return "\n  ".join([what, *said, _shown(left, None)])


def _verb(own: Sequence[str]) -> _TypedVerb | None:
    """The verb that ``own`` begins with; None if it is none that takes a target."""
    from tensortide.cli.app import application
    from tensortide.cli.verb import HELP_FLAGS, options_of
    from tensortide.request import Arg

    chain, apps, _ = application(own).parse_commands([word for word in own if word not in HELP_FLAGS])
    command = apps[-1].default_command
    if not chain or command is None:
        return None
    found = options_of(command)
    arguments = [one for one in found if isinstance(one.opt, Arg)]
    takes = {name: bool not in one.kinds for one in found for name in one.names}
    known = {**dict.fromkeys((*HELP_FLAGS, "--version"), False), **takes}
    kinds = {kind for one in found for kind in one.opt.of}
    several, scripts = any(one.is_tuple for one in arguments), "script" in kinds or "workload" not in kinds
    return _TypedVerb(tuple(chain), known, several, scripts) if arguments else None


def _function(own: Sequence[str], verb: _TypedVerb) -> _Function | None:
    """The function of a script that is named as a target, if one is."""
    from tensortide.recorder.suggest import runs_alone

    place = _place(own, verb, function=True)
    found = None if place is None else _FUNCTION.fullmatch(own[place])
    if place is None or found is None or (tree := _tree(found[1])) is None or not runs_alone(tree):
        return None
    return _Function(place, found[1], found[2], tree)


def _place(own: Sequence[str], verb: _TypedVerb, *, function: bool = False) -> int | None:
    """The place of the word that begins a script's command, or of that which names a function of a file."""
    place = len(verb.words)
    while place < len(own):
        word = own[place]
        if (_FUNCTION.fullmatch(word) is not None) if function else _begins(word):
            return place
        place += 2 if verb.options.get(word) else 1
    return None


def _begins(word: str) -> bool:
    from tensortide.recorder.script_command import begins_command

    return not word.startswith("-") and (word.endswith(".py") or begins_command(word))


def _tree(path: str) -> ast.Module | None:
    """The syntax tree of a file, if it has one."""
    from tensortide.errors import WorkloadError
    from tensortide.recorder.suggest import parsed

    try:
        return parsed(path)
    except WorkloadError:  # what runs it says what is wrong
        return None


def likely(name: str, known: Iterable[str]) -> str:
    """The one of the ``known`` options that ``name`` is a misspelling or another word of, if of any."""
    ratios = {one: SequenceMatcher(None, name, one).ratio() for one in known}
    if (meant := _SYNONYMS.get(name, "")) in ratios:
        return meant
    best = max(ratios, key=lambda one: ratios[one])
    return best if name.startswith("--") and ratios[best] > ALIKE else ""


def _with_interpreter(command: Sequence[str]) -> list[str]:
    """``command``, with ``python`` before a file if that is the interpreter of this program."""
    own = shutil.which("python")
    if command[0].endswith(".py") and own is not None and Path(own).parent == Path(sys.executable).parent:
        return ["python", *command]
    return list(command)


def _instead(own: Sequence[str], found: _Function) -> str:
    """The command with a script in place of its function, where what follows is ours."""
    return _shown([*own[: found.place], *own[found.place + 1 :]], _with_interpreter([found.file]))


def _commands(before: Sequence[str], head: Sequence[str], arguments: Sequence[str], found: _Divided) -> str:
    """The command to write for a script that these ``arguments`` follow, or two where that is in doubt."""
    first = _shown([*before, *found.ours], _with_interpreter([*head, *found.theirs]))
    other = _shown(before, _with_interpreter([*head, *arguments]))
    return f" one of\n  {first}\n  {other}" if found.doubt else f"\n  {first}"


def _shown(own: Sequence[str], command: Sequence[str] | None) -> str:
    """A command line to paste; ``command`` is that of a script."""
    return shlex.join(["tensortide", *own, *(["--", *command] if command is not None else [])])
