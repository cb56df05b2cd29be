"""What a level does not promise to stop. Everything else has to fail behind it, as root and as an ordinary user."""

from collections.abc import Mapping

from orchard.process.sandbox.policy import Level
from tests.process.sandbox.corpus.files import OPEN

_ALWAYS = frozenset(attack.name for attack in OPEN)

_LANDLOCK = frozenset(
    {
        # A socket with a path is none of Landlock's business: with one that a job may use, all can be used.
        "connect to X11",
        "connect to a database",
        "connect to a socket through a descriptor",
        "connect to a socket through a link",
        "connect to another job's door",
        "connect to docker",
        "connect to the GPG agent",
        "connect to the SSH agent",
        "connect to the engine",
        "connect to the session bus",
        "connect to the system bus",
        # The network is the host's: its addresses can be read, and nothing on it can be reached.
        "see the network of the host",
        # Processes are seen, and what they share by a key is shared with the job; what leaves its parents stays.
        "attach shared memory of the host",
        "list shared memory of the host",
        "open a queue of the host",
        "open a semaphore of the host",
        "pin the engine to one processor",
        "read the command line of another program",
        "see the connections of the host",
        "slow the engine down",
        "stay after the end",
        # There is no other name for root, and no smaller set of rights that a program could ever have.
        "be able to have capabilities",
        "be called root",
        "become root",
        # Landlock looks at paths, not at what a node stands for.
        "use a node that lies in the worktree",
        # `/dev/shm` is the host's.
        "read shared memory of the host by its name",
        # Modes and times of files are none of Landlock's business.
        "change the mode of a program",
        "change the time of a file",
        # A file inside of a writable folder cannot be kept from being written.
        "change commondir",
        "change gitdir",
        "change the .git file through a hard link",
        "change the .git file through its descriptor",
        "delete the .git file",
        "make config.worktree",
        "overwrite the .git file of the worktree",
        "plant a workflow",
        "plant a workflow after moving its folder",
        "plant a workflow after moving the folder above",
        "plant servers for agents",
        "plant settings of claude",
        "plant settings of claude in a folder of its own",
        "plant settings of claude through a link",
        "replace commondir by renaming",
        "replace the .git file by renaming",
        # `/proc` is the host's.
        "read the flags of all memory",
        "read the keys of all",
        "read the list of timers",
    }
)

NOT_PROMISED: Mapping[Level, frozenset[str]] = {"bwrap": _ALWAYS, "landlock": _ALWAYS | _LANDLOCK}
