"""Entry point in the user's interpreter, which may lack tensortide or PyTorch; it is run as a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> int:
    """Run the script named on the command line: the file of the request, the script, its arguments."""
    request = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder of this file
    try:
        import tensortide.recorder.torch_compat  # noqa: F401  # before all else: it says what is wrong with PyTorch
        from tensortide.recorder.script_process import run
    except ImportError as error:
        said = f"{sys.executable} cannot run the script under tensortide: {error}"
        Path(request["outcome"]).write_text(json.dumps({"import": said}), "utf-8")
        return 1
    return run(request, *sys.argv[2:])


if __name__ == "__main__":
    raise SystemExit(main())
