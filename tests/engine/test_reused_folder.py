"""A job that gets the folder of an earlier one finds what a checkout of its commit gives, and nothing else."""

import pytest

from tests.engine.conftest import Orchard, statuses

pytestmark = pytest.mark.anyio

TRACKED = {"kept.txt": "kept\n", "d/one": "1\n", "d/two": "2\n", "d/e/three": "3\n"}


def at_base(orchard: Orchard) -> None:
    orchard.repo.commit(TRACKED)


async def landed(orchard: Orchard, *works: str, chained: bool = True) -> dict[str, str]:
    """What lands after jobs that ran one after the other in one folder; each begins with what the one before made."""
    needs = ["" if number == 0 or not chained else f"\n    needs: [j{number - 1}]" for number in range(len(works))]
    jobs = "".join(
        f"\n  - id: j{number}\n    priority: {len(works) - number}{needs[number]}\n    work: |\n      {work}"
        for number, work in enumerate(works)
    )
    status = await orchard.run(f"name: reuse\nmax_parallel: 1\ntarget: done\njobs:{jobs}\n")
    assert set(statuses(status).values()) == {"succeeded"}, status
    return orchard.repo.files("done")


async def test_files_that_a_sparse_checkout_took_away_are_there_again(orchard: Orchard) -> None:
    at_base(orchard)

    found = await landed(
        orchard,
        "git sparse-checkout set --no-cone /a; echo x > a",
        "ls d/e/three > seen; git checkout -q -b topic; echo x > b",
    )

    assert found == {**found, **TRACKED, "seen": "d/e/three\n", "a": "x\n", "b": "x\n"}


async def test_two_names_of_one_file_are_two_files_for_the_next_job(orchard: Orchard) -> None:
    at_base(orchard)

    found = await landed(
        orchard,
        "ln d/one copy; echo new > n1; ln n1 n2; git add -A; git commit -qm own",
        "echo more >> copy; echo more >> n1",
    )

    assert (found["d/one"], found["n2"]) == ("1\n", "new\n")
    assert (found["copy"], found["n1"]) == ("1\nmore\n", "new\nmore\n")


@pytest.mark.parametrize("commit", ["true", "git add -A; git commit -qm own"])
async def test_the_next_job_reads_what_git_stores_and_not_what_was_written(orchard: Orchard, commit: str) -> None:
    at_base(orchard)
    orchard.repo.commit({".gitattributes": "*.txt text eol=lf\n*.bat text eol=crlf\n*.c ident\n"})

    found = await landed(
        orchard,
        f"printf 'a\\r\\nb\\r\\n' > a.txt; printf 'a\\nb\\n' > b.bat; printf '$Id$\\n' > c.c; {commit}",
        "cat a.txt b.bat | od -c > seen; grep -c 'Id: ' c.c > id; true",
    )

    assert found["seen"].count("\\r") == 2  # those of b.bat, and none of a.txt
    assert found["id"] == "1\n"


@pytest.mark.parametrize("commit", ["true", "git add -A; git commit -qm own"])
async def test_rights_that_a_job_gave_are_not_those_of_the_next(orchard: Orchard, commit: str) -> None:
    at_base(orchard)

    found = await landed(
        orchard,
        f"echo x > a; echo y > d/new; chmod 600 d/one; chmod 700 d a; chmod 500 d/e; {commit}",
        "stat -c '%a %n' d d/e d/one d/new a > seen; umask > umask",
    )

    umask = int(found["umask"], 8)
    plain, entered = f"{0o666 & ~umask:o}", f"{0o777 & ~umask:o}"
    modes = {name: mode for mode, name in (row.split(" ") for row in found["seen"].splitlines())}
    assert modes == {"d": entered, "d/e": entered, "d/one": plain, "d/new": plain, "a": entered}


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("move", ["git symbolic-ref HEAD refs/heads/theirs", "git switch -q -c theirs-too"])
async def test_the_next_job_stands_on_no_branch_of_the_job_before(orchard: Orchard, move: str, chained: bool) -> None:
    at_base(orchard)
    orchard.repo("branch", "theirs")
    before = orchard.repo("rev-parse", "theirs")

    found = await landed(
        orchard,
        f"echo 0 > zero; {move}; echo 1 > one",
        "git symbolic-ref -q HEAD >> seen; echo 2 > two; git add -A; git commit -qm own",
        chained=chained,
    )

    assert found["seen"] == "" and orchard.repo("rev-parse", "theirs") == before
