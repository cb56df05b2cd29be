"""What ordinary tools need behind the wall without mounts: locks, and files in the folders above."""

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.engine.machine.manifests import manifests_above
from orchard.process.sandbox.level import walls
from orchard.testing import Repo
from tests.engine.conftest import Orchard, job

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not any(one.works for one in walls().findings if one.level == "landlock"), reason="no Landlock"),
]
CARGO = '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n'


@pytest.fixture(autouse=True)
def landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", "landlock")


@pytest.fixture
def on_a_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Orchard]:
    """A repository that is not in shared memory, where the temporary folders of these tests may be."""
    folder = Path(tempfile.mkdtemp(prefix="orchard-", dir="/var/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("HOME", str(folder))
    for name in ("STATE", "CONFIG", "CACHE", "RUNTIME"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    yield Orchard(Repo.make(folder / "repo", files={"README.md": "# small\n"}))
    shutil.rmtree(folder)


async def test_locks_between_processes_work(on_a_disk: Orchard) -> None:
    uses = 'import multiprocessing as m; m.Semaphore(); q = m.Queue(); q.put(1); print(q.get(), file=open("a", "w"))'

    status = await on_a_disk.run(f"name: n\njobs:\n  - {{id: a, work: '/usr/bin/python3 -c ''{uses}'''}}\n")

    assert status["plan"]["status"] == "succeeded", job(status, "a")


@pytest.mark.parametrize("name", ["Cargo.toml", "pyproject.toml", ".cargo/config.toml"])
async def test_files_that_tools_look_for_in_the_folders_above_can_be_read_and_no_others(
    orchard: Orchard, name: str
) -> None:
    orchard.repo.commit({name: "seen\n"})
    (orchard.repo.path / ".env").write_text("SECRET=1\n")
    top = orchard.repo.path

    status = await orchard.run(f"name: n\njobs:\n  - {{id: a, work: 'cat {top}/{name} > a; ! cat {top}/.env'}}\n")

    assert status["plan"]["status"] == "succeeded", job(status, "a")
    assert orchard.repo.files("work")["a"] == "seen\n"


RUST = next(iter(Path(pwd.getpwuid(os.getuid()).pw_dir).glob(".rustup/toolchains/*/bin/cargo")), Path("/none"))


@pytest.mark.skipif(not RUST.exists(), reason="no cargo")
async def test_cargo_finds_no_closed_door_above_the_worktree(orchard: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX_EXPOSE", str(RUST.parent.parent))
    orchard.repo.commit({"Cargo.toml": CARGO, "src/lib.rs": "", ".gitignore": "target\nCargo.lock\n"})

    status = await orchard.run(
        "name: n\njobs:\n  - {id: a, work: RUST metadata --offline --no-deps > m.json}\n".replace("RUST", str(RUST))
    )

    assert status["plan"]["status"] == "succeeded", job(status, "a")


async def test_cargos_settings_in_the_home_stay_closed_and_the_line_that_opens_them_is_told(on_a_disk: Orchard) -> None:
    home = on_a_disk.repo.path.parent
    (home / ".cargo").mkdir()
    (home / ".cargo/config.toml").write_text("[registry]\ntoken = 's'\n")
    (home / "package.json").write_text("{}")
    reads = f"cat {home}/package.json > a && cat {home}/.cargo/config.toml"

    status = await on_a_disk.run(f"name: n\njobs:\n  - {{id: a, heal: false, work: '{reads}'}}\n")

    assert 'sandbox.expose = ["~/.cargo/config.toml"]' in str(job(status, "a")["hint"])


def test_a_link_of_such_a_name_is_not_opened(tmp_path: Path) -> None:
    top = (tmp_path / "top").resolve()
    (top / "work").mkdir(parents=True)
    (tmp_path / "secret").write_text("s")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.toml").write_text("s")
    (top / "Cargo.toml").symlink_to(tmp_path / "secret")
    (top / ".cargo").symlink_to(tmp_path / "folder")
    (top / "go.mod").write_text("module x\n")

    assert [path for path in manifests_above(top / "work") if path.is_relative_to(top)] == [top / "go.mod"]
