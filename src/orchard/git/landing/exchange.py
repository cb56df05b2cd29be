"""Renames that overwrite nothing: two files change places, or a file goes where nothing is.

`os.rename` replaces whatever stands at its goal, also what somebody put there a moment ago. The kernel can do better
(`renameat2` of Linux, `renamex_np` of macOS). Where the file system cannot, a second name is made, which fails if the
name is taken, and the first one is removed; changing places has no such substitute, and the caller takes two steps.

    swap   two files change places at once; False where that cannot be done here
    put    a file of ours goes to a name that nobody has; FileExistsError if somebody has it
    take   whatever stands at a name goes to a place that is ours alone
"""

import errno
import os
import sys
from collections.abc import Callable
from functools import cache

_CURRENT = -100
_NO_REPLACE, _SWAP = (4, 2) if sys.platform == "darwin" else (1, 2)
# A file system that does not know the flag says EINVAL; a kernel that does not know the call says ENOSYS, and a filter
# around a container may say EPERM.
_CANNOT = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM})


def swap(one: bytes, other: bytes) -> bool:
    code = _call()(one, other, _SWAP)
    if code in _CANNOT:
        return False
    if code:
        raise OSError(code, os.strerror(code), os.fsdecode(other))
    return True


def put(source: bytes, goal: bytes) -> None:
    """Move a file to a name that nobody has.

    Only from a place of ours: where it takes two steps, the name that is removed must not be anybody's by then. Whoever
    dies between them leaves one file with both names.
    """
    code = _call()(source, goal, _NO_REPLACE)
    if code in _CANNOT:
        os.link(source, goal, follow_symlinks=False)
        os.unlink(source)  # noqa: PTH108 (bytes)
    elif code:
        raise OSError(code, os.strerror(code), os.fsdecode(goal))


def take(source: bytes, goal: bytes) -> None:
    os.rename(source, goal)  # noqa: PTH104 (bytes)


@cache
def _call() -> Callable[[bytes, bytes, int], int]:
    """The kernel's own rename with flags; it answers 0, or the number of the error."""
    import ctypes  # only whoever lands pays for it

    library = ctypes.CDLL(None, use_errno=True)
    name = "renamex_np" if sys.platform == "darwin" else "renameat2"
    function = getattr(library, name, None)
    if function is None:
        return lambda source, goal, flag: errno.ENOSYS

    def rename(source: bytes, goal: bytes, flag: int) -> int:
        words = (source, goal) if sys.platform == "darwin" else (_CURRENT, source, _CURRENT, goal)
        return 0 if function(*words, ctypes.c_uint(flag)) == 0 else ctypes.get_errno()

    return rename
