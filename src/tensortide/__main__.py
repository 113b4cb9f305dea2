"""``python -m tensortide``."""

from tensortide.cli import main

main()
