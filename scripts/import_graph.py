"""The rooms of the package and of its tests, and which of them a change reaches through imports."""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/tensortide/"
TESTS = "tests/"
SCRIPTS = "scripts/"
_IMPORT = re.compile(r"^\s*(?:from|import) ((?:tests|scripts)\b[\w.]*)(?: import (\([^)]*\)|[^\n(]*))?", re.MULTILINE)


def changed_paths(revision: str, root: Path = ROOT) -> list[str]:
    """Paths that differ from ``revision``, old and new ones of what was renamed, and files that git does not know."""
    commands = (
        ["git", "diff", "--name-only", "--no-renames", "-z", revision],
        ["git", "ls-files", "--others", "--exclude-standard", "-z"],
    )
    found = [subprocess.run(each, cwd=root, capture_output=True, check=True).stdout for each in commands]
    return [os.fsdecode(path) for path in b"".join(found).split(b"\0") if path]


def room_of(path: str) -> str:
    """The room of a path: a folder or a module of the package or of the tests; ``top`` for other files."""
    folder = next((each for each in (PACKAGE, TESTS) if path.startswith(each)), None)
    return "top" if folder is None else path.removeprefix(folder).split("/")[0].removesuffix(".py")


def package_imports() -> dict[str, set[str]]:
    """Rooms of the package and the rooms that each imports, inside functions too. ``__init__`` is the package."""
    import grimp

    graph = grimp.build_graph("tensortide", cache_dir=None)
    found: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules:
        found[_room_of_module(module)] |= set(map(_room_of_module, graph.find_modules_directly_imported_by(module)))
    return {room: others - {room} for room, others in found.items()}


def _room_of_module(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imports_of_tests(root: Path = ROOT) -> dict[str, set[str]]:
    """Modules of tests and scripts, ``tests.graph.test_model``, and the modules of both that each imports: a module of
    tests also the ``conftest`` of its folder and of those above."""
    found: dict[str, set[str]] = {}
    for path in (*(root / TESTS).rglob("*.py"), *(root / SCRIPTS).rglob("*.py")):
        lines = _IMPORT.findall(path.read_text("utf-8", "replace"))
        names = {name.strip() for _, several in lines for name in several.strip("()").split(",")}
        modules = {module for module, _ in lines}
        packages = {".".join(module.split(".")[:2]) for module in modules}
        found[_module_of(path.relative_to(root).as_posix())] = (
            modules | packages | {f"{module}.{name}" for module in modules for name in names}
        )
    for module, others in found.items():
        parts = module.split(".")
        others.update(found.keys() & {".".join([*parts[:length], "conftest"]) for length in range(1, len(parts))})
    return found


def _module_of(path: str) -> str:
    """The module of a Python file; of another file the package of its folder, which reads it."""
    module = path.removesuffix(".py").removesuffix("/__init__") if path.endswith(".py") else path.rpartition("/")[0]
    return module.replace("/", ".")


def reached(changed: Iterable[str], imports: dict[str, set[str]]) -> dict[str, int]:
    """Rooms that import one of ``changed``, directly or through others, with the number of imports between."""
    users: dict[str, set[str]] = defaultdict(set)
    for room, others in imports.items():
        for other in others:
            users[other].add(room)
    found = dict.fromkeys(changed, 0)
    wave, distance = set(found), 0
    while wave:
        distance += 1
        wave = {user for room in wave for user in users[room]} - found.keys()
        found.update(dict.fromkeys(wave, distance))
    return found


def reached_tests(paths: Iterable[str], imports: dict[str, set[str]], root: Path = ROOT) -> list[str]:
    """Folders and files of tests for a change of ``paths``: first those of the rooms that changed, then those of the
    rooms that import them, nearest first. ``imports`` is of the rooms of the package."""
    paths = list(paths)
    distances = reached((room_of(path) for path in paths if not path.startswith(TESTS)), imports)
    distances.update((room_of(path), 0) for path in paths if path.startswith(TESTS))
    changed_modules = [_module_of(path) for path in paths if path.startswith((TESTS, SCRIPTS))]
    for module, distance in reached(changed_modules, imports_of_tests(root)).items():
        room = room_of(f"{module.replace('.', '/')}.py")
        distances[room] = min(distance, distances.get(room, distance))
    order = sorted(distances, key=lambda room: (distances[room], room))
    return list(dict.fromkeys(target for room in order for target in _targets(room, root)))


def _targets(room: str, root: Path) -> Iterator[str]:
    folder = root / TESTS / room
    if folder.is_dir() and any(folder.rglob("test_*.py")):
        yield f"{TESTS}{room}"
    elif room == "data":  # any test may read them
        yield TESTS.rstrip("/")
    elif folder.is_dir():
        return  # it has no tests of its own
    elif (root / TESTS / f"{room}.py").is_file() and room.startswith("test_"):
        yield f"{TESTS}{room}.py"
    else:
        yield from sorted(f"{TESTS}{file.name}" for file in (root / TESTS).glob("test_*.py"))
