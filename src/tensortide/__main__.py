"""``python -m tensortide``."""

from __future__ import annotations

from tensortide.cli import main

if __name__ == "__main__":
    main()
