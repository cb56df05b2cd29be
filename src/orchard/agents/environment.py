"""What of the user's environment an agent sees: an allow-list, and what its backend or the user names."""

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping

_ALLOWED = (
    r"^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TERM|COLORTERM|TZ|EDITOR"
    r"|(HTTPS?|ALL|NO|FTP)_PROXY|(https?|all|no|ftp)_proxy"
    r"|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NODE_EXTRA_CA_CERTS|GIT_SSL_CAINFO"
    r"|JAVA_HOME|GOPATH|GOROOT|GOCACHE|GOMODCACHE|CARGO_HOME|RUSTUP_HOME|NVM_DIR|VOLTA_HOME|FNM_DIR|PNPM_HOME"
    r"|PYENV_ROOT|VIRTUAL_ENV|CONDA_PREFIX|UV_CACHE_DIR|PIP_CACHE_DIR|NPM_CONFIG_CACHE|npm_config_cache)$"
)
"""What programs need to be found, to speak the right language and to reach the network: nothing that is a secret."""


def find_program(name: str, path: str) -> str | None:
    """Where a program is. Folders of a PATH that are no whole paths would be looked for in whichever folder is near."""
    if os.sep in name:
        return shutil.which(name)
    whole = os.pathsep.join(part for part in path.split(os.pathsep) if os.path.isabs(part))  # noqa: PTH117 - a PATH's part
    return shutil.which(name, path=whole) if whole else None


def first_word(command: str) -> str:
    """The program of a command line; empty where it is none."""
    try:
        return (shlex.split(command) or [""])[0]
    except ValueError:
        return ""


def agent_environment(host: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The host's variables that an agent sees: those that everybody may, and those that are named for it."""
    wanted = set(names)
    return {name: value for name, value in host.items() if name in wanted or re.match(_ALLOWED, name)}
