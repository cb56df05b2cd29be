"""What opens the door of a daemon: its token, codes that are good once, and sessions made from them.

    token    256 random bits, new at every start, in a 0600 file of a 0700 folder; `Authorization: Bearer`
    code     part of the printed link; good once and for ten minutes; exchanged for a session
    session  256 random bits for one tab of a browser, known to this daemon only and gone with it; sent like the token

A code is a file in the daemon's folder that is called after the code's digest. So whoever may read the token can make
a new link without asking anybody, and taking the file away is what makes a code good only once.
"""

import hmac
import secrets
import shutil
import time
from collections import OrderedDict
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from orchard.files import replace_whole
from orchard.surfaces.http.daemon.address import FOLDERS, read_http_address

TOKEN_FILE = "token"
CODES = "codes"
CODE_SECONDS = 600.0
MOST_SESSIONS = 64
BYTES = 32


def make_folder(runtime: Path, port: int) -> Path:
    """A new folder for one daemon; those of daemons that were killed are taken away.

    It is called after the port, so that with a port of your own the token is always found in the same place.
    """
    for left in runtime.glob(FOLDERS):
        if read_http_address(left) is None and (left.name == f"http-{port}" or _is_old(left)):
            shutil.rmtree(left, ignore_errors=True)
    folder = runtime / f"http-{port}"
    if folder.exists():  # the same port of another address of this machine
        folder = runtime / f"http-{port}-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    (folder / CODES).mkdir(mode=0o700)
    return folder


def _is_old(folder: Path) -> bool:
    """Whether nobody can be about to begin in this folder."""
    with suppress(OSError):
        return folder.stat().st_mtime < time.time() - CODE_SECONDS
    return False


def new_code(folder: Path) -> str:
    """A code that can be exchanged for a session, once and soon."""
    _sweep(folder)
    code = secrets.token_urlsafe(BYTES)
    replace_whole(folder / CODES / _digest(code), b"")
    return code


class Tokens:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / TOKEN_FILE
        token = secrets.token_urlsafe(BYTES)
        replace_whole(self.file, token.encode())
        self._token = _digest(token)
        self._sessions: OrderedDict[str, None] = OrderedDict()
        """Digests of the sessions that are good, the oldest first."""

    def is_token(self, given: str) -> bool:
        """Whether this is the token; digests are compared, so that the time taken tells nothing."""
        return hmac.compare_digest(_digest(given), self._token)

    def is_session(self, given: str) -> bool:
        shown, found = _digest(given), False
        for known in self._sessions:
            found |= hmac.compare_digest(shown, known)
        return found

    def exchange(self, code: str) -> str | None:
        """The session for a code, or None where the code was used, is too old or was never made."""
        place = self.folder / CODES / _digest(code)
        try:
            made = place.stat().st_mtime
            place.unlink()  # only one of those who come with the same code gets past this
        except OSError:
            return None
        if not 0.0 <= time.time() - made + 1.0 <= CODE_SECONDS + 1.0:
            return None
        session = secrets.token_urlsafe(BYTES)
        self._sessions[_digest(session)] = None
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session


def _sweep(folder: Path) -> None:
    """Take away codes that nobody used in time."""
    with suppress(OSError):
        for place in (folder / CODES).iterdir():
            if place.stat().st_mtime < time.time() - CODE_SECONDS:
                place.unlink(missing_ok=True)


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogateescape")).hexdigest()
