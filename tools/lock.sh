#!/usr/bin/env bash
# Resolve the dependencies anew and write the four lock files, each with hashes and for every platform.
#
#   requirements.lock         what Orchard runs with
#   requirements-build.lock   what builds it
#   requirements-dev.lock     what checks and tests it, on top of both
#   requirements-web.lock     Node as a Python package, for machines without it
#
# The later files take the versions of the earlier ones, so that all of them fit into one environment.
# No `uv.lock`: it would write the address of a package index into the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv=$(command -v .venv/bin/uv || command -v uv || true)
if [[ -z $uv ]]; then
  echo "There is no 'uv' here. Install it with: .venv/bin/pip install uv" >&2
  exit 1
fi

lock() {
  local output=$1
  shift
  "$uv" pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links --upgrade --output-file "$output" "$@"
}

# Editable installs ask the backend for one package more than pyproject.toml can name.
build_requires=$(.venv/bin/python -c '
import tomllib
with open("pyproject.toml", "rb") as file:
    print("\n".join([*tomllib.load(file)["build-system"]["requires"], "editables"]))')

lock requirements.lock pyproject.toml
lock requirements-build.lock --constraint requirements.lock - <<<"$build_requires"
lock requirements-dev.lock --constraint requirements.lock --constraint requirements-build.lock \
  --all-extras --group dev pyproject.toml
lock requirements-web.lock --only-group web
