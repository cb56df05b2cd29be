"""Places that the settings open in the wall around programs, and that are not there: they open nothing, in silence."""

from pathlib import Path

from orchard.model.sandbox import Sandbox
from orchard.text import quoted


def place_of(text: str, home: Path) -> Path:
    """Where a place is that the settings name; `~` is the user's home."""
    return home / text.removeprefix("~/") if text.startswith("~/") else Path(text)


def missing_places(sandbox: Sandbox, home: Path | None = None) -> list[str]:
    """A sentence for each; without a wall none has any meaning."""
    if sandbox.level == "off":
        return []
    home = home or Path.home()
    gone = [text for text in sandbox.expose if not place_of(text, home).exists()]
    found = [f"sandbox.expose names {quoted(text)}, which is not there: it opens nothing." for text in gone]
    for text in sandbox.write:
        place = place_of(text, home)
        if not place.is_dir():
            what = "which is no folder" if place.exists() else "which is not there"
            found.append(f"sandbox.write names {quoted(text)}, {what}: it opens nothing. Programs cannot make it.")
    return found
