"""Commands to type next: a verb, with the target and the options that were given."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tensortide.recorder.script_command import PREFIX
from tensortide.request import Request


def command(verb: str, target: str, *words: str) -> str:
    """The command as it is typed; that of a script comes last."""
    if target.startswith(PREFIX.rstrip()):
        return f"{shlex.join(['tensortide', verb, *words])} {target}"
    return shlex.join(["tensortide", verb, target, *words])


def moving(target: str, *options: str) -> str:
    """The command that plans ``target``, captured with these ``options``, in less memory with moves to the host."""
    return command("plan", target, *options, "--budget", "80%", "--offload", "host")


def typed(asked: Request, *without: str) -> Iterator[str]:
    """The options that are given, as they are typed, but those of fields called ``without``."""
    for one in asked.given():
        if one.field.name in without:
            continue
        value = asked.get(one.field.name)
        if isinstance(value, bool):
            yield one.name if value else one.name.replace("--", "--no-", 1)
            continue
        for each in value if one.is_tuple else (value,):
            # a minus sign would make the value another option
            yield from (f"{one.name}={each}",) if str(each).startswith("-") else (one.name, str(each))
