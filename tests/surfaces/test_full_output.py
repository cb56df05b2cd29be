"""What a person is told where the output cannot be written, and names that `--only` takes."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from orchard.errors import UsageError, no_locks
from orchard.planfile.parse import parse
from orchard.surfaces.cli.commands.plans.run import jobs_meant


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_version_that_cannot_be_written_is_an_error_without_a_traceback() -> None:
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "orchard", "--version"]
        ran = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, check=False)

    assert ran.returncode == 1
    assert ran.stderr.decode() == "error: The output cannot be written: No space left on device.\n"


def test_a_lock_that_cannot_be_written_is_not_blamed_on_missing_locks() -> None:
    refused = no_locks(Path("lock"), OSError(errno.EROFS, "Read-only file system"))

    assert "cannot be written" in refused.message and "flock" not in str(refused.hint)


def test_only_takes_a_group_with_a_slash_and_offers_no_job_that_nobody_wrote() -> None:
    plan = parse(b"name: p\njobs: [{id: a, group: g, work: 'true'}]")

    assert jobs_meant(plan, ["g/"]) == ["g/a"]
    with pytest.raises(UsageError) as refused:
        jobs_meant(plan, ["validation"])
    assert "snapshot" not in refused.value.message
