"""The job's own folder at `/tmp`: it is there for all programs of a job, and what a job leaves there leads nowhere."""

import os
import subprocess
from pathlib import Path

import pytest

from orchard.process.sandbox import scratch
from orchard.process.sandbox.bwrap import bwrap_program
from orchard.process.sandbox.ground import forget
from orchard.process.sandbox.policy import Mount, Policy
from orchard.process.sandbox.spawn import popen
from tests.process.sandbox import walled as started
from tests.process.sandbox.walled import PATH, walled

pytestmark = pytest.mark.skipif(bwrap_program() is None, reason="bubblewrap is not installed")


class Job:
    """One whose worktree lies below /tmp, as in a scratch repository."""

    def __init__(self, top: Path) -> None:
        self.top, self.own, self.tree, self.victim = top, top / "own", top / "trees/one", top / "victim"
        for folder in (self.own, self.tree, self.victim, top / "home"):
            folder.mkdir(parents=True)
        (self.tree / ".git").write_text("gitdir: mine\n")
        self.policy = Policy(
            home=top / "home",
            temporary=self.own,
            writable=(self.tree, top / "home"),
            protected=(self.tree / ".git",),
            hidden=(Path("/tmp"), Path("/var/tmp")),
            network="off",
        )

    @property
    def first(self) -> Path:
        """What stands for all of it in the job's folder."""
        return self.own / self.top.name

    def run(self, line: str) -> str:
        done = walled(self.policy, ("/bin/sh", "-c", line), self.tree)
        return done.stdout + done.stderr


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_what_a_program_leaves_in_tmp_the_next_one_finds_and_the_machine_does_not(job: Job) -> None:
    name = f"left-{os.getpid()}"

    job.run(f"echo one > /tmp/{name}; echo two > /var/tmp/{name}.2")

    assert job.run(f"cat /tmp/{name} /var/tmp/{name}.2 $TMPDIR/{name}") == "one\ntwo\none\n"
    assert not Path("/tmp", name).exists() and (job.own / name).exists()


def test_places_below_tmp_are_mounted_on_top_and_nothing_else_of_the_machine_is(job: Job) -> None:
    (job.victim / "secret").write_text("secret")

    said = job.run(f"cat .git; echo x > made; ls {job.top}; ls /tmp; cat {job.victim}/secret; echo x > .git")

    assert said.splitlines()[:4] == ["gitdir: mine", "home", "trees", job.top.name]
    assert "secret: No such file" in said and "Read-only file system" in said
    assert (job.tree / "made").exists() and not list(job.first.iterdir())


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp"])
def test_a_job_cannot_move_or_remove_what_places_stand_on(job: Job, place: str) -> None:
    name = f"{place}/{job.top.name}"

    said = job.run(f"mv {name} {name}.moved; rmdir {name}; ln -sfn /etc {name}; mv -T /tmp/x {name}; cat .git")

    assert "gitdir: mine" in said and said.count("busy") == 2
    assert job.first.is_dir() and not job.first.is_symlink()


def plant(job: Job, what: str) -> None:
    """What a program of the job could have left where nothing stood yet."""
    if what == "file":
        job.first.write_text("mine")
    elif what == "pipe":
        os.mkfifo(job.first)
    else:
        job.first.symlink_to(what.format(victim=job.victim))


PLANTED = ["/oldroot{victim}", "{victim}", "/newroot/etc", "../../../etc", "file", "pipe"]


@pytest.mark.parametrize("what", PLANTED)
def test_what_a_job_left_there_is_moved_aside_and_leads_nowhere(job: Job, what: str) -> None:
    plant(job, what)

    said = job.run(f"cat .git; rm -f .git; cat .git; ls {job.top}; ls /etc/passwd")

    assert said.count("gitdir: mine") == 2 and "home\ntrees\n/etc/passwd\n" in said, said
    assert not list(job.victim.iterdir()) and job.first.is_dir() and not job.first.is_symlink()
    assert [path.name.startswith(f"{job.top.name}.") for path in job.own.iterdir()].count(True) == 1


def test_without_that_bubblewrap_writes_where_the_link_leads(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the folder in memory and the name of our own are for: the attack is real."""
    plant(job, "/oldroot{victim}")
    monkeypatch.setattr(started, "make_standing", lambda policy, ground: None)
    monkeypatch.setattr("orchard.process.sandbox.bwrap.laid_out", lambda policy, ground: ground.places)

    job.run("true")

    assert [path.name for path in job.victim.iterdir()]


def test_a_link_a_file_and_a_mount_right_in_tmp_have_their_names_there(job: Job, tmp_path: Path) -> None:
    outside = Path("/tmp", f"orchard-file-{os.getpid()}")
    link = Path("/tmp", f"orchard-link-{os.getpid()}")
    goal = Path("/tmp", f"orchard-goal-{os.getpid()}")
    outside.write_text("shown\n")
    link.symlink_to(job.victim)
    (job.victim / "through").write_text("through\n")
    try:
        job.policy = Policy(
            home=job.top / "home",
            temporary=job.own,
            writable=(job.tree,),
            hidden=(Path("/tmp"),),
            exposed=(outside, link),
            mounts=(Mount(job.victim, goal / "deep"),),
            network="off",
        )
        for _ in range(2):
            assert job.run(f"cat {outside} {link}/through {goal}/deep/through") == "shown\nthrough\nthrough\n"
        (job.own / outside.name).unlink()
        (job.own / outside.name).symlink_to(job.victim / "through")
        assert job.run(f"cat {outside}") == "shown\n"
    finally:
        outside.unlink()
        link.unlink()
    assert (job.own / outside.name).read_text() == "" and not goal.exists()


def test_a_program_that_an_earlier_one_put_into_tmp_can_be_started(job: Job) -> None:
    job.run("printf '#!/bin/sh\\necho built\\n' > /tmp/tool; chmod +x /tmp/tool")
    forget()

    with popen(
        job.policy,
        "bwrap",
        ["/tmp/tool"],
        cwd=job.tree,
        env=dict(PATH),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    ) as process:
        assert process.communicate(timeout=60)[0] == b"built\n"
    with pytest.raises(FileNotFoundError):
        popen(job.policy, "bwrap", ["/tmp/another"], cwd=job.tree, env=dict(PATH))


def test_a_policy_that_does_not_hide_tmp_has_its_folder_where_it_is(job: Job) -> None:
    policy = Policy(home=job.top, temporary=job.own, writable=(job.own,), network="off")

    done = walled(policy, ("/bin/sh", "-c", "echo $TMPDIR; touch $TMPDIR/x"), Path("/"))

    assert done.stdout == f"{job.own}\n" and (job.own / "x").exists()
    assert scratch.outside("/tmp/x", policy) is None
