"""GitHub Actions: annotations of failed checks, and the summary of a job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tensortide.errors import CheckError, OutputError
from tensortide.measures.checks.request import Tried
from tensortide.measures.checks.suite import Check
from tensortide.request import Opt, Request

SUMMARY = "GITHUB_STEP_SUMMARY"
"""Variable that names the file to which the summary of a step of a job is appended."""


@dataclass(frozen=True, kw_only=True)
class JobRequest(Request):
    """The report to a job of GitHub Actions."""

    GROUP = "Output"

    summary: Annotated[
        bool, Opt("Append the result, as Markdown, to the summary of the job of GitHub Actions.", common=True)
    ] = False

    def file(self) -> Path | None:
        """The file of the summary, if one is asked for. Raises CheckError where there is none."""
        if not self.summary:
            return None
        if not (found := os.environ.get(SUMMARY, "")):
            raise CheckError(
                f"--summary appends to the file named by {SUMMARY}, which is not set: write --markdown FILE"
            )
        return Path(found)


def in_actions() -> bool:
    """Tell whether this is a job of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def append(path: Path, text: str) -> None:
    """Append to the summary. Raises OutputError if it cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def annotated(one: Tried) -> Iterator[str]:
    """Write a workflow command for each assertion that is no pass, at its line in the file of checks, or for a check
    that could not be tried."""
    from tensortide.reports.sections.checks import told

    title = f"tensortide {one.check.name}"
    if one.error is not None:
        yield _command(one.check, title, f"could not be checked: {one.error}", None)
    elif one.result is not None:
        for each in one.result.failures:
            yield _command(one.check, title, told(each), one.check.lines.get(each.text))


def _command(check: Check, title: str, message: str, line: int | None) -> str:
    file = _in_workspace(str(check.file) if check.file is not None else _source(check.target))
    given = {"file": file, "line": "" if line is None else str(line), "title": title}
    properties = ",".join(f"{name}={_property(value)}" for name, value in given.items() if value)
    return f"::error {properties}::{_data(message)}"


def _in_workspace(file: str) -> str:
    """The path of a file from the root of the repository, as annotations name files, where the job says where it is."""
    root = os.environ.get("GITHUB_WORKSPACE", "")
    path = Path(file).resolve()
    if not root or not file or not path.is_relative_to(Path(root).resolve()):
        return file
    return path.relative_to(Path(root).resolve()).as_posix()


def _source(target: str) -> str:
    """The Python file of a target, if it names one."""
    path = target.partition(":")[0]
    return path if path.endswith(".py") else ""


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
