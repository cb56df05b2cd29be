"""The dashboard: the files that a browser gets, and the paths that it gets them from.

They are built from `web/` into the folder `pages/dashboard`. Where they were not built, the plain page stands in for
them, and says so. All of them are the same for everybody and tell nothing, so they need no token; what they show, they
ask the API for.
"""

from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

from msgspec import Struct

BUILT = "dashboard"
ENTRY = "index.html"
ASSETS = "/assets/"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
FOR_EVER = "public, max-age=31536000, immutable"
"""An asset is named after its content: what is another has another name."""
ANEW = "no-cache"


class Page(Struct, frozen=True):
    content: bytes
    kind: str
    caching: str


def plain_pages() -> Mapping[str, Page]:
    """The page that only lists plans, without anything that has to be built."""
    folder = _folder()
    return {
        "/plain": _page(folder / "start.html"),
        "/start.js": _page(folder / "start.js"),
        "/start.css": _page(folder / "start.css"),
    }


def pages() -> Mapping[str, Page]:
    """Every page with its path; `/` is the dashboard, or the plain page where it was not built."""
    plain = plain_pages()
    built = _folder() / BUILT
    if not (built / ENTRY).is_file():
        return {"/": plain["/plain"], **plain}
    assets = {f"{ASSETS}{one.name}": _page(one, FOR_EVER) for one in (built / "assets").iterdir() if _kind(one)}
    return {"/": _page(built / ENTRY), **plain, **assets}


def _folder() -> Traversable:
    return files("orchard.surfaces.http") / "pages"


def _page(file: Traversable, caching: str = ANEW) -> Page:
    return Page(file.read_bytes(), _kind(file), caching)


def _kind(file: Traversable) -> str:
    """Its media type; empty: it is nothing that is served."""
    return KINDS.get(f".{file.name.rpartition('.')[2]}", "")
