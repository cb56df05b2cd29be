"""Programs behind a wall of bubblewrap, as any user: started as the product starts them, and waited for."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from orchard.process.sandbox.bwrap import ENVIRONMENT, bwrap_argv, bwrap_options, packed
from orchard.process.sandbox.ground import Account, forget, survey
from orchard.process.sandbox.policy import Policy
from orchard.process.sandbox.scratch import make_standing
from orchard.process.sandbox.seccomp import seccomp_filter

ORDINARY = 12345
"""A user without a name, a home, or anything else."""
BWRAP = Path("/usr/bin/bwrap")
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

Change = Callable[[tuple[str, ...]], tuple[str, ...]]
"""What a mutant does to the options."""


def walled(
    policy: Policy,
    argv: tuple[str, ...],
    folder: Path,
    *,
    user: int | None = None,
    env: Mapping[str, str] = PATH,
    change: Change = lambda options: options,
    before: tuple[str, ...] = (),
    stdin: int = subprocess.DEVNULL,
    filtered: bool = True,
) -> subprocess.CompletedProcess[str]:
    account = Account.own() if user is None else Account(user, frozenset({user}))
    forget()
    calls = _memory(seccomp_filter(unix=True, inet="all")) if filtered else None
    ground = survey(policy, account)
    make_standing(policy, ground)
    options = change(bwrap_options(policy, ground, env, folder, seccomp=calls))
    descriptors = (_memory(packed(options)), *(() if calls is None else (calls,)))
    try:
        return subprocess.run(
            (*before, *bwrap_argv(BWRAP, policy, descriptors[0]), *argv),
            pass_fds=descriptors,
            env=dict(ENVIRONMENT),
            stdin=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _memory(content: bytes) -> int:
    descriptor = os.memfd_create("orchard-wall")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
