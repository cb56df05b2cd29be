"""Virtual environments of Python, which hold the path that they were made at.

A copy as it is would be a trap: its `bin/pip` begins with the path of the user's own environment, and installs there.
So the small files that name that path name the worktree's instead: what is in `bin`, the settings, and the
files by which a project that was installed as editable is found. Compiled programs are left as they are.
"""

import os
import re
import stat
from collections.abc import Collection

from orchard.git.folders import lstat

SETTINGS = b"pyvenv.cfg"
LARGEST = 1 << 20
_INTERPRETER = re.compile(rb"(python|pypy)[0-9.]*")
_NAMES_PLACE = re.compile(
    rb"pyvenv\.cfg|bin/[^/]+|lib(64)?/(python|pypy)[0-9.]+/site-packages/([^/]+\.(pth|egg-link)|__editable__[^/]*\.py)"
)


def is_interpreter(base: bytes, real: bytes, path: bytes, said: bytes) -> bool:
    """Whether a link is the Python of a virtual environment, which is a program outside of the checkout."""
    folder, _, name = path.rpartition(b"/")
    environment, _, last = folder.rpartition(b"/")
    settings = lstat(base + b"/" + environment + b"/" + SETTINGS)
    if last != b"bin" or not _INTERPRETER.fullmatch(name) or settings is None or not stat.S_ISREG(settings.st_mode):
        return False
    if b"/" in said and not said.startswith(b"/"):
        return False
    lexical, leads = os.path.normpath(said), os.path.realpath(base + b"/" + path)
    if any(one.startswith((base + b"/", real + b"/")) for one in (lexical, leads)):
        return False
    found = lstat(leads)
    return found is not None and stat.S_ISREG(found.st_mode) and bool(found.st_mode & 0o111)


def may_name_place(environments: Collection[bytes], path: bytes) -> bool:
    """Whether a file is one of those in which an environment says where it is."""
    return any(
        path.startswith(one + b"/") and _NAMES_PLACE.fullmatch(path[len(one) + 1 :]) is not None for one in environments
    )


def moved(content: bytes, old: bytes, new: bytes) -> bytes | None:
    """The same text for an environment elsewhere; None where it does not say where it is, or is no text."""
    if old not in content or b"\0" in content:
        return None
    found = re.sub(re.escape(old) + rb"(?![\w.-])", lambda _: new, content)
    return found if found != content else None
