"""Write all golden texts of the tests anew, to be reviewed with ``git diff``.

python -m scripts.goldens            # all
python -m scripts.goldens sections   # of the files whose paths have this word

Texts of tests that fail before they compare stay as they are; the exit status is that of pytest.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.golden import REWRITE, assert_golden

ROOT = Path(__file__).parents[1]


def golden_tests(root: Path = ROOT) -> Iterator[str]:
    """Yield the tests that compare with a golden text, as pytest names them."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
            if isinstance(node, ast.FunctionDef) and any(ast.unparse(one) == assert_golden.__name__ for one in calls):
                yield f"{path.relative_to(root).as_posix()}::{node.name}"


def main(words: list[str]) -> int:
    """Run these tests so that they write, and return their exit status."""
    found = [one for one in golden_tests() if all(word in one for word in words)]
    if not found:
        print(f"no golden text is of {' and '.join(words)}")
        return 2
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", *found]
    return subprocess.run(command, check=False, cwd=ROOT, env=dict(os.environ) | {REWRITE: "1"}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
