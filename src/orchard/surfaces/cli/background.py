"""The engine as a background process: `python -m orchard.surfaces.cli.background FOLDER`.

It says "ready" by closing the descriptor it was given, and ends when nobody has asked for anything
for a while. Asked to end by a signal, it stops what runs first; the next engine tells of it.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from msgspec import to_builtins

from orchard import own_log
from orchard.app import open_app
from orchard.config.user_dirs import user_dirs
from orchard.errors import EXIT_CANCELED, EXIT_FAILED, OrchardError
from orchard.process.privacy import hide_memory
from orchard.surfaces.cli.interruption import until_stopped
from orchard.surfaces.mcp_channel import teach
from orchard.surfaces.next_steps import in_commands
from orchard.surfaces.notices.setup import add_notifier


def main(argv: list[str]) -> int:
    hide_memory()
    ready = int(os.environ.pop("ORCHARD_READY", "-1"))

    def say_ready() -> None:
        with suppress(OSError):
            os.close(ready)

    try:
        own_log.start(os.environ.get(own_log.VARIABLE), 0, user_dirs().state)
        app = open_app(Path(argv[0]), in_commands)
        teach(app)
        add_notifier(app)
        until_stopped(lambda: app.serve_until_idle(say_ready))
    except OrchardError as error:
        with suppress(OSError):
            os.write(ready, json.dumps({"message": error.message, "hint": to_builtins(error.hint)}).encode())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_CANCELED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
