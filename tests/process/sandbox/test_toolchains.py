"""Toolchains in the home: found where they are, and nothing that keeps credentials is shown with them."""

from pathlib import Path

from orchard.process.sandbox.toolchains import ROWS, toolchains

# Where programs keep what opens doors elsewhere.
CREDENTIALS = (
    ".ssh/id_ed25519", ".aws/credentials", ".netrc", ".npmrc", ".pypirc", ".gem/credentials", ".cargo/credentials.toml",
    ".cargo/config.toml", ".m2/settings.xml", ".gradle/gradle.properties", ".config/gh/hosts.yml",
    ".docker/config.json",
    ".kube/config", ".gnupg/private-keys-v1.d/key", ".claude/.credentials.json", ".codex/auth.json", ".git-credentials",
    ".config/uv/uv.toml", ".config/pypoetry/auth.toml", ".sdkman/var/key", ".conda/.condarc", ".condarc", ".yarnrc.yml",
    ".config/gcloud/credentials.db", ".local/share/keyrings/login.keyring", ".local/share/opencode/auth.json",
    ".local/state/orchard/key", ".cabal/config", ".stack/config.yaml", ".pub-cache/credentials.json", ".bashrc",
    ".bash_history", ".config/configstore/x.json", ".cache/huggingface/token", ".terraform.d/credentials.tfrc.json",
    ".local/share/uv/credentials/c.toml", ".proto/.prototools", ".rye/config.toml", ".foundry/keystores/a",
    ".bunfig.toml",
)  # fmt: skip


def test_no_credential_is_below_what_is_shown(tmp_path: Path) -> None:
    for row in ROWS:
        for part in row.parts:
            (tmp_path / row.root / part).mkdir(parents=True, exist_ok=True)

    shown = {path for chain in toolchains(tmp_path, {}) for path in chain.paths}

    assert len(shown) > 60
    assert not [name for name in CREDENTIALS if any((tmp_path / name).is_relative_to(path) for path in shown)]


def test_one_that_was_moved_is_found_where_its_variable_says(tmp_path: Path) -> None:
    home, moved = tmp_path / "home", tmp_path / "elsewhere"
    (home / ".rustup").mkdir(parents=True)
    moved.mkdir()

    [chain] = toolchains(home, {"RUSTUP_HOME": str(moved)})

    assert (chain.paths, chain.variables) == ((moved,), {"RUSTUP_HOME": str(moved)})


def test_its_programs_are_told_where_it_is_since_their_home_is_another(tmp_path: Path) -> None:
    (tmp_path / ".pyenv").mkdir()

    [chain] = toolchains(tmp_path, {})

    assert chain.variables == {"PYENV_ROOT": str(tmp_path / ".pyenv")}


def test_no_variable_shows_the_whole_home(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()

    values = (str(tmp_path), str(tmp_path.parent), "/", f"{tmp_path}/x/..", ".", "")

    assert not [value for value in values if toolchains(tmp_path, {"GOPATH": value, "NVM_DIR": value, "PATH": value})]


def test_a_place_that_cannot_be_looked_at_is_none(tmp_path: Path) -> None:
    (tmp_path / ".pyenv").symlink_to(tmp_path / ".pyenv")

    assert toolchains(tmp_path, {"NVM_DIR": f"{tmp_path}/{'x' * 300}", "PATH": f"{tmp_path}/.pyenv"}) == ()


def test_folders_of_the_path_are_shown_when_no_toolchain_holds_them(tmp_path: Path) -> None:
    for name in (".fzf/bin", ".cargo/bin"):
        (tmp_path / name).mkdir(parents=True)
    path = f"{tmp_path}/.fzf/bin:{tmp_path}/.cargo/bin:{tmp_path}/missing:/usr/bin:{tmp_path}"

    found = {chain.name: chain.paths for chain in toolchains(tmp_path, {"PATH": path})}

    assert found == {"cargo": (tmp_path / ".cargo/bin",), "PATH": (tmp_path / ".fzf/bin",)}
