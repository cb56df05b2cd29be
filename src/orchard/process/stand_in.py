"""Who waits in our place, as the shell sees it: a parent that stays at the terminal while we do the work.

A shell gives its prompt back when the process that it started has ended. So that work can go on after that, it is done
in a child from the start; the parent hands on signals and the exit code, and nothing else. When a person leaves
(`leave`), the parent ends, and the work goes on where no key of that terminal reaches it.
"""

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
HEARD = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)

_stand_in: int | None = None


def begin(code: int) -> None:
    """Go on in a child of this process, which hands on how that ends; `code`: its own, where a person leaves."""
    global _stand_in  # noqa: PLW0603 (it is the process that has one)
    if sys.platform != "linux":
        return  # nothing there tells who sent a signal, and nothing ends a child with its parent
    me, before = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    try:
        child = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    if child:
        _wait_for(child, code)
    _ends_with_parent(signal.SIGKILL)
    if os.getppid() != me:
        os._exit(128 + signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _stand_in = me


def is_there() -> bool:
    """Whether somebody waits in our place, so that a person can leave."""
    return _stand_in is not None


def leave() -> None:
    """Give the terminal back to the shell, and go on in the background; the standard streams must be elsewhere by now.

    We stay in the session: helpers of ours are known by that. But no key of the terminal reaches us from now on.
    """
    global _stand_in
    stand_in, _stand_in = _stand_in, None
    os.setpgid(0, 0)
    _ends_with_parent(0)
    if stand_in is not None and os.getppid() == stand_in:
        os.kill(stand_in, signal.SIGUSR1)


def _ends_with_parent(number: int) -> None:
    """Whoever kills the process that he started means us."""
    import ctypes  # only who has a stand-in needs it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _wait_for(child: int, code: int) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while True:
        heard = signal.sigwaitinfo(HEARD)
        if heard.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                _end_as(status)
        elif heard.si_signo == signal.SIGUSR1:
            if heard.si_pid == child:
                os._exit(code)
        elif heard.si_code <= 0:  # sent by a process, to us alone; the child hears what the terminal sends
            with suppress(ProcessLookupError):
                os.kill(child, heard.si_signo)


def _end_as(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) % 256)
