"""A forge that is running, and a way to ask it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forge.scripted import Forge, running

WITHOUT = (
    "GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GITLAB_TOKEN", "GH_HOST",
    "GITLAB_HOST", "GITHUB_SERVER_URL", "CI_SERVER_URL",
)  # fmt: skip
"""Whatever the machine of a developer or of CI has: no test may send that anywhere."""


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WITHOUT:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    with running(tmp_path / "forge") as one:
        one.make()
        yield one


@pytest.fixture
def sealed_forge(tmp_path: Path) -> Iterator[tuple[Forge, Path]]:
    """One that speaks TLS, and the certificate that says so."""
    place = tmp_path / "cert.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    argv = ["openssl", *words.split(), "-keyout", str(tmp_path / "key.pem"), "-out", str(place)]
    subprocess.run(argv, check=True, capture_output=True)
    (tmp_path / "both.pem").write_bytes((tmp_path / "key.pem").read_bytes() + place.read_bytes())
    with running(tmp_path / "sealed", tmp_path / "both.pem") as one:
        one.make()
        yield one, place


@pytest.fixture
def plain_env() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in WITHOUT}
