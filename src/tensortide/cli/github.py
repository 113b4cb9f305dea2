"""GitHub Actions: annotations of failed checks, and the summary of a job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tensortide.errors import CheckError, OutputError
from tensortide.metrics.checks.checking import Checked
from tensortide.metrics.checks.suite import Check

SUMMARY = "GITHUB_STEP_SUMMARY"
"""Variable that names the file to which the summary of a step of a job is appended."""


def in_actions() -> bool:
    """Tell whether this is a job of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def summary_file() -> Path:
    """Return the file of the summary. Raises CheckError where there is none."""
    if not (found := os.environ.get(SUMMARY, "")):
        raise CheckError(f"--summary appends to the file named by {SUMMARY}, which is not set: write --markdown FILE")
    return Path(found)


def append(path: Path, text: str) -> None:
    """Append to the summary. Raises OutputError if it cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def annotated(check: Check, found: Checked) -> Iterator[str]:
    """Write a workflow command for each assertion that is no pass, at its line in the file of checks."""
    from tensortide.reports.sections.checks import told

    for one in found.failures:
        yield _command(check, f"tensortide {check.name}", told(one), check.lines.get(one.text))


def error_annotation(check: Check, message: str) -> str:
    """Write a workflow command for a check that could not be tried."""
    return _command(check, f"tensortide {check.name}", f"could not be checked: {message}", None)


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
