"""Play a newcomer's day on real projects, in a terminal: what was once a bug or missing, point by point.

python tools/newcomer.py                   on a small project that stands in for real ones
python tools/newcomer.py --archives DIR    on each archive of sources (*.tar.gz, *.tgz) in the folder, by turns
python tools/newcomer.py B1 M3             only these points
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def main(arguments: list[str]) -> int:
    """Play the points and print a table; 1 if one is not as it should be."""
    from tests.docs.day import a_day, projects
    from tests.docs.points import POINTS as BUGS_AND_GAPS
    from tests.docs.puzzles import PUZZLES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archives", type=Path, help="a folder with archives of sources")
    parser.add_argument("points", nargs="*", help="names such as B1; else all")
    given = parser.parse_args(arguments)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="newcomer-") as scratch:
        known = projects(given.archives, Path(scratch))
        for number, point in enumerate((*BUGS_AND_GAPS, *PUZZLES)):
            if given.points and point.name not in given.points:
                continue
            name = list(known)[number % len(known)]
            begun, said = time.monotonic(), "none"
            needs_root = point.name == "B3" and os.getuid() != 0
            if point.check is not None and not needs_root:
                try:
                    with a_day(known[name], Path(scratch) / point.name) as day:
                        point.check(day)
                    said = "ok"
                except AssertionError as error:
                    wrong, said = wrong + 1, f"WRONG: {str(error)[:600]}"
            note = f"  ({point.note})" if point.note else ""
            print(
                f"{point.name:4} {said:5} {time.monotonic() - begun:5.1f} s  {name:16} {point.words}{note}", flush=True
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
