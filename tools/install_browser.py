"""Install Chromium for the tests of the dashboard, where that can be done by Debian's packages.

Where there is a browser already nothing is done, and where none can be installed that is said: the tests are skipped.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def main() -> int:
    if found := next(filter(None, map(shutil.which, NAMES)), None):
        print(f"There is a browser: {found}")
        return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print("NO BROWSER: install Chromium by hand. The tests in tests/web are skipped.", file=sys.stderr)
        return 0
    words = ["apt-get", "install", "--yes", "--no-install-recommends", "-qq", "chromium", "fonts-dejavu-core"]
    if subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode != 0:
        print("NO BROWSER: Chromium could not be installed. The tests in tests/web are skipped.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
