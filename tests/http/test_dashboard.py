"""The files of the dashboard as the daemon serves them: to everybody, strictly, and as long as their names say."""

import gzip
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.surfaces.http import dashboard
from orchard.surfaces.http.dashboard import FOR_EVER, pages
from tests.acceptance.program import desks
from tests.http.daemon import Daemon, served

BUILT = Path(dashboard.__file__).parent / "pages" / dashboard.BUILT

needs_dashboard = pytest.mark.skipif(
    not (BUILT / "index.html").is_file(), reason="THE DASHBOARD IS NOT BUILT: run 'make web'"
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    for desk in desks(tmp_path_factory.mktemp("dashboard")):
        with served(desk) as one:
            yield one


def assets(page: bytes) -> list[str]:
    return re.findall(r"(?:src|href)=\"(/assets/[^\"]+)\"", page.decode())


@needs_dashboard
def test_the_page_and_its_assets_need_no_token_and_tell_nothing(daemon: Daemon) -> None:
    page = daemon.ask("GET", "/")

    assert page.status == 200 and len(assets(page.body)) == 2
    for path in assets(page.body):
        assert daemon.ask("GET", path).status == 200
    assert daemon.ask("GET", "/assets/../pages/start.html").status == 401
    assert daemon.ask("GET", "/assets/none.js").status == 401


@needs_dashboard
def test_a_page_is_asked_for_anew_and_what_is_named_after_its_content_is_kept(daemon: Daemon) -> None:
    page = daemon.ask("GET", "/")

    assert page.header("cache-control") == "no-cache"
    for path in assets(page.body):
        assert re.search(r"-[A-Z0-9]{8}\.(js|css)$", path)
        assert daemon.ask("GET", path).header("cache-control") == FOR_EVER


@needs_dashboard
def test_nothing_of_it_may_come_from_elsewhere(daemon: Daemon) -> None:
    page = daemon.ask("GET", "/")
    policy = page.header("content-security-policy") or ""

    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert b"style=" not in page.body and not re.search(rb"<script(?![^>]*src=)", page.body)
    assert not re.search(rb"(src|href)=\"(?!/assets/|data:,)", page.body)


@needs_dashboard
def test_it_is_small() -> None:
    sizes = [len(gzip.compress(file.read_bytes())) for file in (BUILT / "assets").glob("*.[jc]s*")]

    assert len(sizes) > 1
    assert sum(sizes) <= 250 * 1024


@needs_dashboard
def test_the_licences_of_what_is_in_it_come_with_it() -> None:
    text = (BUILT / "assets" / "licenses.txt").read_text()

    for name in ("react ", "@xyflow/react ", "@dagrejs/dagre ", "yaml "):
        assert f"\n{name}" in f"\n{text}"
    assert text.count("Permission") >= 5


def test_without_it_the_plain_page_stands_in_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "pages"
    shutil.copytree(BUILT.parent, folder, ignore=shutil.ignore_patterns(dashboard.BUILT))
    monkeypatch.setattr(dashboard, "_folder", lambda: folder)

    found = pages()

    assert set(found) == {"/", "/plain", "/start.js", "/start.css"}
    assert b"make web" in found["/"].content and found["/"] == found["/plain"]


def test_the_plain_page_is_there_in_any_case(daemon: Daemon) -> None:
    plain = daemon.ask("GET", "/plain")

    assert plain.status == 200 and b"/start.js" in plain.body
    assert daemon.ask("GET", "/start.js").status == daemon.ask("GET", "/start.css").status == 200
