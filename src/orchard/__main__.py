"""The program `orchard`: `python -m orchard` and the installed script both begin here.

`--version` is answered before anything is imported: scripts and editors ask it often.
"""

import sys

from orchard import __version__


def main() -> int:
    """Do what the command line asks; the exit code says how it went."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"orchard {__version__}\n")
        return 0
    from orchard.surfaces.cli.start import run_command_line  # brings click: 40 ms and more

    return run_command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
