"""The program `orchard`: `python -m orchard` and the installed script both begin here.

`--version` is answered before anything is imported: scripts and editors ask it often.
"""

import os
import sys

from orchard import __version__


def main() -> int:
    """Do what the command line asks; the exit code says how it went."""
    open_streams()
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"orchard {__version__}\n")
        return 0
    from orchard.surfaces.cli.start import run_command_line  # brings click: 40 ms and more

    return run_command_line(sys.argv[1:])


def open_streams() -> None:
    """Whoever closed a standard stream gets nothing there; else the next file that is opened would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
