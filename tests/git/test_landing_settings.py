"""No setting of git's changes what lands: every key that git knows, with a value that would hurt if it were obeyed.

Each key is set to a program that leaves a trace, or to another odd value. The landing then is exactly the validated
commit, with exactly its files; or it is refused, and nothing has changed. No program ran.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.errors import OrchardError
from orchard.git.command import run_git
from orchard.git.landing.checkout import BranchMoved
from orchard.git.landing.landing import land, undo, was_undone, where_is
from orchard.git.repository import find_repository
from orchard.testing import Repo
from tests.git.test_landing import Scene, make_scene, picture

NAMES = {
    "branch": "main", "remote": "origin", "filter": "strange", "merge": "strange", "diff": "strange", "url": "https://x/",
    "submodule": "sub", "pager": "merge", "alias": "read-tree", "color": "diff", "credential": "https://x",
    "difftool": "vimdiff", "mergetool": "vimdiff", "includeIf": "gitdir:/", "guitool": "x", "man": "x", "browser": "x",
    "http": "https://x", "gitcvs": "x", "protocol": "file", "tar": "x", "trailer": "x", "hook": "x", "advice": "x",
    "gpg": "ssh", "sendemail": "x", "fsck": "x", "receive": "x", "fetch": "x", "slot": "x", "help": "x",
}  # fmt: skip
VALUES: dict[str, tuple[str, ...]] = {
    "branch.main.mergeoptions": ("-s ours", "-s ours --no-ff", "-s subtree", "--squash", "--no-commit", "--autostash"),
    "pull.twohead": ("ours", "octopus"),
    "pull.octopus": ("ours",),
    "merge.ff": ("false", "only"),
    "merge.autostash": ("true",),
    "merge.verifysignatures": ("true",),
    "merge.strange.driver": ("CANARY %A",),
    "core.autocrlf": ("true", "input"),
    "core.eol": ("crlf",),
    "core.filemode": ("false",),
    "core.symlinks": ("false",),
    "core.ignorecase": ("true",),
    "core.bare": ("true",),
    "core.sparsecheckout": ("true",),
    "core.splitindex": ("true",),
    "core.fsmonitor": ("CANARY", "true"),
    "core.logallrefupdates": ("false", "always"),
    "core.sharedrepository": ("group", "0666"),
    "core.worktree": (),  # another checkout, not another landing: there is a state for it
    "extensions.worktreeconfig": ("true",),
    "index.version": ("2", "3", "4"),
    "checkout.workers": ("4",),
    "filter.strange.smudge": ("CANARY",),
    "filter.strange.clean": ("CANARY",),
    "filter.strange.process": ("CANARY",),
    "submodule.recurse": ("true",),
    "feature.manyfiles": ("true",),
    "feature.experimental": ("true",),
}
"""What a key is set to, where a program and a word are not what would hurt most."""


def keys(cwd: Path) -> list[str]:
    """Every key that this git knows, with something for what stands between the dots."""
    found = run_git(("help", "--config"), cwd=cwd, env={"PATH": "/usr/bin:/bin", "HOME": str(cwd)}).text.splitlines()
    names: dict[str, None] = {}
    for row in found:
        key = row.strip()
        if not re.fullmatch(r"[A-Za-z][\w-]*(\.[^\s]+)+", key):
            continue
        section, _, rest = key.partition(".")
        middle = NAMES.get(section, "x")
        rest = re.sub(r"<[^>]*>|\*", middle, rest)
        names[f"{section}.{rest}"] = None
    return [*names, "merge.strange.driver", "filter.strange.smudge", "filter.strange.clean", "filter.strange.process"]


def test_git_names_its_settings(tmp_path: Path) -> None:
    assert len(keys(tmp_path)) > 300


@pytest.fixture
def scene(repo: Repo) -> Scene:
    made = make_scene(repo)
    (repo.path / ".git/info").mkdir(exist_ok=True)
    (repo.path / ".git/info/attributes").write_text("*.txt merge=strange diff=strange\n")
    return made


def settings(folder: Path, part: int, parts: int) -> Iterator[tuple[str, str]]:
    canary = folder / "canary"
    canary.write_text(f"#!/bin/sh\ntouch '{folder}/ran'\ncat\n")
    canary.chmod(0o755)
    for number, key in enumerate(keys(folder)):
        if number % parts == part:
            for value in VALUES.get(key.lower(), (str(canary), "1")):
                yield key, value.replace("CANARY", str(canary))


PARTS = 12


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_setting_changes_what_lands(scene: Scene, tmp_path: Path, part: int) -> None:
    wrong = [
        words for key, value in settings(tmp_path, part, PARTS) if (words := landing_with(scene, tmp_path, key, value))
    ]

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("branch.main.mergeoptions", "-s ours"), ("branch.main.mergeoptions", "-s ours --no-ff"),
        ("branch.main.mergeoptions", "-s subtree"), ("branch.main.mergeoptions", "--squash"),
        ("pull.twohead", "ours"), ("merge.ff", "false"), ("merge.autostash", "true"), ("core.fsmonitor", "CANARY"),
        ("core.hooksPath", "CANARY"), ("merge.strange.driver", "CANARY %A"), ("core.splitIndex", "true"),
        ("color.diff.new", "CANARY"), ("diff.wsErrorHighlight", "CANARY"),
    ],
)  # fmt: skip
def test_a_setting_that_once_changed_it_does_not_change_what_lands(
    scene: Scene, tmp_path: Path, key: str, value: str
) -> None:
    list(settings(tmp_path, 0, 10_000))
    assert landing_with(scene, tmp_path, key, value.replace("CANARY", str(tmp_path / "canary"))) == ""


def test_what_became_of_a_landing_is_told_whatever_git_log_thinks_of_the_settings(scene: Scene) -> None:
    scene.land()
    undo(scene.repository, "main", scene.old, scene.new)
    scene.repo.commit({"later.txt": "later\n"}, message="squashed\n\n    Orchard-Landing: this")
    for key in ("color.diff.new", "color.decorate.branch", "log.date"):
        scene.repo("config", key, "nonsense")
    assert scene.repo.run("log", "-1").status != 0

    assert where_is(scene.repository, "main", "this", scene.old, scene.new) == "landed-elsewhere"
    assert where_is(scene.repository, "main", "other", scene.old, scene.new) == "moved"
    assert was_undone(scene.repository, "main", scene.old, scene.new)
    assert not was_undone(scene.repository, "main", scene.new, scene.old)


def landing_with(scene: Scene, folder: Path, key: str, value: str) -> str:
    """Land and undo with this setting; what is wrong then."""
    repo, config = scene.repo, scene.repo.path / ".git/config"
    saved, before = config.read_bytes(), picture(scene.repo.path)
    if repo.run("config", key, value).status != 0:
        return ""  # git does not take it
    said = f"{key}={value}: "
    landed: object
    try:
        repository = find_repository(repo.path)
        landed = land(repository, "main", scene.old, scene.new, "m")
        after, tip = picture(repo.path), _tip(repo)
        back = undo(repository, "main", scene.old, scene.new) if isinstance(landed, BranchMoved) else None
    except OrchardError as error:
        landed, back, after, tip = error, None, picture(repo.path), _tip(repo)
    finally:
        config.write_bytes(saved)
    if (folder / "ran").exists():
        (folder / "ran").unlink()
        return said + "a program ran"
    if not isinstance(landed, BranchMoved):
        return "" if (after, tip) == (before, scene.old) else said + f"refused, and yet something changed: {landed}"
    if tip != scene.new or (not key.lower().startswith("core.") and after != _expected(scene)):
        return said + "what landed is not what was validated"
    if not isinstance(back, BranchMoved) or _tip(repo) != scene.old:
        repo("reset", "-q", "--hard", scene.old)
        return said + f"it was not undone: {back}"
    return (
        "" if repo("status", "--porcelain") == "" or key.lower().startswith("core.") else said + "the checkout differs"
    )


def _tip(repo: Repo) -> str:
    return (repo.path / ".git/refs/heads/main").read_text().strip()


def _expected(scene: Scene) -> dict[str, str]:
    """The files of the new commit, as a checkout without settings has them."""
    place = scene.repo.path.parent / "expected"
    if not place.exists():
        scene.repo("worktree", "add", "-q", "--detach", str(place), scene.new)
        (place / ".git").unlink()
    return picture(place)
