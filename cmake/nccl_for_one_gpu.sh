#!/usr/bin/env bash
# Builds NCCL from its source for one architecture of GPU, with the functions alone that moetune calls: a few MB, which
# can be carried to a machine without a network. From 2.30 on NCCL puts several ranks on one GPU where
# NCCL_MULTI_RANK_GPU_ENABLE is 1; tests and gpu_day.sh do so with what is in .staged/nccl of this checkout.
set -euo pipefail

root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
release=v2.30.7-1
address=https://github.com/NVIDIA/nccl
architecture='' sources='' prefix=$root/.staged/nccl

usage() {
  cat <<TEXT
usage: cmake/nccl_for_one_gpu.sh [--prefix FOLDER] [--sources FOLDER] [ARCHITECTURE]

Builds NCCL ($release of $address) for GPUs of one ARCHITECTURE (80, 90, 100, 120; of this machine's GPU where it has
one) into FOLDER/include and FOLDER/lib (.staged/nccl, where the build finds it).

  --sources FOLDER  a checkout of NCCL, 2.30 or later, instead of a clone; it is copied
Exit code: 0 it is built; 1 it could not be built; 2 bad arguments; 77 nvcc is missing.
TEXT
}
say() { echo "nccl_for_one_gpu: $*" >&2; }
die() { say "$1"; exit "${2:-2}"; }

while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --prefix | --sources)
      [ $# -gt 1 ] || die "$1: found no value after it, expected a folder"
      if [ "$1" = --prefix ]; then prefix=$2; else sources=$2; fi
      shift
      ;;
    -*) die "$1: found an unknown flag, expected one of: --prefix, --sources, --help" ;;
    *) architecture=$1 ;;
  esac
  shift
done
if [ -z "$architecture" ]; then
  gpus=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null) || gpus=''
  architecture=$(sed -nE '/^[0-9.]+$/ {s/\.//p; q}' <<<"$gpus")
  [ -n "$architecture" ] || die "found no GPU, expected an architecture such as 90"
fi
[[ $architecture =~ ^[1-9][0-9]{1,2}$ ]] || die "found architecture '$architecture', expected a number such as 90"
nvcc=$(command -v "${CUDACXX:-nvcc}" || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc") ||
  die "found no nvcc in PATH, CUDACXX, CUDA_HOME or /usr/local/cuda, expected a CUDA toolkit" 77
known=$("$nvcc" --list-gpu-arch)
grep -qx "compute_$architecture" <<<"$known" ||
  die "found architecture $architecture, expected one that $nvcc supports: $(paste -sd ' ' <<<"$known")"

scratch=$(mktemp -d "${TMPDIR:-/tmp}/moetune-nccl-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
if [ -z "$sources" ]; then
  sources=$scratch/nccl
  git clone --quiet --depth 1 --branch "$release" "$address" "$sources" || die "could not clone $address" 1
fi
# Reads NCCL_MAJOR := 2 and the like.
number() { sed -nE "s/^NCCL_$1 *:= *([0-9]+).*/\1/p" "$sources/makefiles/version.mk" 2>/dev/null || true; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] ||
  die "--sources: found no makefiles/version.mk in $sources, expected the sources of NCCL"
[ "$(printf '%s\n' "$version" 2.30 | sort -V | head -n 1)" = 2.30 ] ||
  die "--sources: found NCCL $version, expected 2.30 or later, which puts several ranks on one GPU"

# The sums and types of moe/comm/nccl by every algorithm that one machine has: NCCL would start nothing, and say
# nothing, if it chose one that is left out. COLLNET needs a network's plugin.
algorithms='(RING|TREE|PAT|NVLS|NVLS_TREE) *'
functions="SendRecv|(AllGather|AllGatherV|Broadcast) $algorithms"
functions+="|(AllReduce|Reduce|ReduceScatter) Sum (f16|bf16|f32|f64) $algorithms"
copy=$scratch/copy
mkdir "$copy"
cp -r "$sources"/{Makefile,makefiles,src} "$copy"
# Kernels for buffers that are registered as windows, which moetune's are not: one type of them is enough to link.
sed -i -E 's/^all_reds = \[.*/all_reds = ["sum"]/; s/^all_tys = \[.*/all_tys = ["f32"]/' \
  "$copy/src/device/symmetric/generate.py"
# A toolkit that has NCCL's headers too would hide these sources' own.
cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
mkdir "$scratch/include"
find "$cuda/include/" -mindepth 1 -maxdepth 1 ! -name 'nccl*' -exec ln -s -t "$scratch/include" {} +
begun=$SECONDS log=$scratch/log
say "building NCCL $version for sm_$architecture; takes minutes"
make -C "$copy" -j "$(nproc)" src.build BUILDDIR="$scratch/build" NVCC="$nvcc" ONLY_FUNCS="$functions" \
  CUDA_HOME="$cuda" CUDA_INC="$scratch/include" \
  NVCC_GENCODE="-gencode=arch=compute_$architecture,code=sm_$architecture" >"$log" 2>&1 </dev/null ||
  { tail -n 20 "$log" >&2; die "NCCL $version could not be built (see above)" 1; }

mkdir -p "$prefix/include" "$prefix/lib"
rm -f "$prefix"/include/nccl.h "$prefix"/lib/libnccl.so*
cp "$scratch/build/include/nccl.h" "$prefix/include"
cp -P "$scratch"/build/lib/libnccl.so* "$prefix/lib"
strip --strip-unneeded "$prefix"/lib/libnccl.so.*.*
say "NCCL $version for sm_$architecture in $prefix, $(du -sh "$prefix" | cut -f1), after $((SECONDS - begun)) s"
