"""The way into `hotslot` and `python -m app`."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """`app.cli.main`; Ctrl+C ends the program without a traceback while its modules are still loaded, too."""
    try:
        # Inside the guard: on a cold disk this takes a second or more.
        from app.cli import main as run
    except KeyboardInterrupt:
        return 130
    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
