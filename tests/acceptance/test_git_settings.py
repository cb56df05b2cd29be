"""Settings and refs by which git sees other content than there is: jobs set them, and nothing of it counts."""

from tests.acceptance.conftest import Desk

LOOKS = "git replace $(git hash-object -w {name}) $(printf '{shown}\\n' | git hash-object -w --stdin)"


def test_where_git_is_to_overlook_edits_every_one_lands_and_the_users_later_ones_show(desk: Desk) -> None:
    desk.repo.commit({"keep.txt": "keep\n", "gone.txt": "gone\n"})
    desk.repo("config", "core.ignoreStat", "true")
    work = "sleep 1; echo edited > keep.txt; rm gone.txt; echo new > new.txt"

    ran = desk.run({"id": "a", "work": work}, {"id": "b", "needs": ["a"], "work": "echo more >> keep.txt"})

    assert ran.code == 0, ran.said
    assert desk.tree("work")[b"keep.txt"][1] == b"edited\nmore\n"
    assert b"gone.txt" not in desk.tree("work") and b"new.txt" in desk.tree("work")
    assert all(row.startswith("H ") for row in desk.repo("ls-files", "-v").splitlines())


def test_what_is_checked_and_shown_is_what_lands_whatever_refs_replace(desk: Desk) -> None:
    hide = [LOOKS.format(name="test.sh", shown="exit 0"), LOOKS.format(name="app", shown="fine")]
    work = f"echo 'exit 1' > test.sh; echo backdoor > app; {'; '.join(hide)}"

    ran = desk.run({"id": "a", "work": work}, verify="sh test.sh")

    assert ran.code == 1, ran.said
    assert "backdoor" in desk("diff", "a").out
