#!/usr/bin/env bash
# Copies the libraries that a build needs from this Debian or Ubuntu into .staged/ of this checkout (20 MiB), where the
# build finds them: carry the checkout to a machine without package sources that has compiler, CMake, ninja, torch and,
# for GPUs, the CUDA toolkit, and build it there.   usage: cmake/stage_dependencies.sh [FOLDER]
set -euo pipefail

root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
target=${1:-$root/.staged}
packages=(libfmt-dev libspdlog-dev libeigen3-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libfccp-dev
  libgtest-dev libgmock-dev libbenchmark-dev libgloo-dev zlib1g-dev
  libsqlite3-dev libyaml-dev)
optional=(libgmock-dev libgloo-dev)

die() { echo "stage_dependencies: $*" >&2; exit 2; }

# Lists the packages of shared libraries, whose names have a version: libfmt9, libspdlog1.10, libbenchmark1debian.
shared_packages() {
  { dpkg-query -Wf '${Depends}\n' libfmt-dev libspdlog-dev libbenchmark-dev 2>/dev/null || true; } |
    grep -oE 'lib(fmt|spdlog|benchmark)[0-9][^ ,]*' | sort -u
}

files_of() {
  local package file
  for package in "${packages[@]}" $(shared_packages); do
    if ! dpkg -s "$package" >/dev/null 2>&1; then
      [[ " ${optional[*]} " == *" $package "* ]] || die "package $package is missing; install it first"
      continue
    fi
    dpkg -L "$package" | while read -r file; do
      case $file in
        /usr/share/doc/* | /usr/share/lintian/* | *.pc) ;;
        */libz.so | */libsqlite3.so | */libyaml.so | */libtomlplusplus.so | */libgloo.so) ;;
        /usr/include/* | /usr/lib/* | /usr/share/cmake/* | /usr/share/eigen3/*) [ -d "$file" ] || echo "$file" ;;
      esac
    done
  done
}

# Lists of Boost what the sources include, with any compiler, and what CMake asks for. A header that is not there
# is taken from that machine's Boost, if it has one, and does not fit these.
files_of_boost() {
  grep -rhE --include=*.{h,cpp,cu} --exclude-dir={build,.staged} '^#include <boost/' "$root" | sort -u |
    g++ -std=c++20 -M -x c++ - |
    tr -s ' \\' '\n' | grep ^/usr/include/boost/
  find /usr/include/boost/config /usr/include/boost/version.hpp -type f
  find /usr/lib/*/cmake/Boost* /usr/lib/*/cmake/boost_headers* -type f
}

rm -rf "$target.part"
mkdir -p "$target.part"
{ files_of; files_of_boost; } | sort -u | (cd / && tar -cf - --files-from <(sed 's|^/||')) | tar -C "$target.part" -xf -
mkdir -p "$target"
rm -rf "$target/usr"  # what nccl_for_one_gpu.sh built beside it stays
mv "$target.part/usr" "$target/usr"
rmdir "$target.part"
echo "staged $(find "$target" -type f | wc -l) files, $(du -sh "$target" | cut -f1), in $target"
