"""Write the lists of the vocabularies whose packages are installed, and docs/coverage.md.

python -m scripts.coverage                      # lists of installed packages, the page
python -m scripts.coverage.models timm          # the ops that models dispatch
"""

from __future__ import annotations

from scripts.coverage.page import PAGE, page, unexplained
from scripts.coverage.vocabularies import VOCABULARIES


def main() -> None:
    """Write what can be written here, and print what is left to do."""
    for one in VOCABULARIES:
        if one.installed():
            one.path.write_text(one.written(), "utf-8")
        print(f"{one.title}: {one.installed() or 'not installed, the list stays as it is'}")
    PAGE.write_text(page(), "utf-8")
    for one in VOCABULARIES:
        for name in unexplained(one):
            print(f"{one.title}: {name} has no rule and no reason in scripts/coverage/reasons.csv")


if __name__ == "__main__":
    main()
