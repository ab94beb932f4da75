# Finds or downloads LibTorch, whose CPU part runs layers. Sourced by ./moetune and, in installed packages, by
# moetune-run.
torch_release=2.11.0
cache=${XDG_CACHE_HOME:-${HOME:-/}/.cache}/moetune

say() { echo "moetune: $*" >&2; }
die() { say "$@"; exit 2; }

make_cache() {
  mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] ||
    die "$cache cannot be written, expected a folder for downloads; set XDG_CACHE_HOME to use another one"
}

# Succeeds if version $1 is at least the version that would be downloaded.
torch_fits() { [ "$(printf '%s\n' "$1" "${torch_release%.*}" | sort -V | head -n 1)" = "${torch_release%.*}" ]; }

# Prints the folder (include/, lib/) of the LibTorch to use: that of MOETUNE_TORCH_DIR, else Python's, else a downloaded
# one.
torch_dir() {
  local dir version
  local find="import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
  for dir in "${MOETUNE_TORCH_DIR:-}" "$(cd / && python3 -c "$find" 2>/dev/null || true)" \
    "$cache/torch-$torch_release/torch"; do
    [ -e "$dir/include/ATen/ATen.h" ] && [ -e "$dir/lib/libtorch_cpu.so" ] || continue
    # A wheel has its version in version.py, an archive for C++ in build-version.
    version=$(sed -n "s/^__version__ = '\([0-9.]*\).*/\1/p" "$dir/version.py" 2>/dev/null ||
      sed 's/[^0-9.].*//' "$dir/build-version" 2>/dev/null || true)
    ! torch_fits "$version" || { echo "$dir"; return; }
  done
  return 1
}

# Prints the first Python that has module $1.
python_with() {
  local python
  for python in python3 /usr/bin/python3; do "$python" -c "import $1" 2>/dev/null && echo "$python" && return; done
  return 1
}

# The folders of the libraries that libtorch_cpu of folder $1 loads, as LD_LIBRARY_PATH has them. cmake/torch.cmake
# knows the same for a build.
torch_library_path() {
  local dir found=()
  for dir in "$1"/lib "$1"/../nvidia/*/lib "$1"/../torch.libs /usr/local/cuda/lib64 \
    /usr/local/cuda/extras/CUPTI/lib64; do
    [ ! -d "$dir" ] || found+=("$dir")
  done
  (IFS=: && echo "${found[*]}")
}

# The wheels of torch and of the two libraries that libtorch_cpu loads. Any Python will do: only the C++ half is kept.
fetch_torch() {
  local target=$cache/torch-$torch_release platforms=() minor quiet=()
  for minor in {17..28}; do platforms+=(--platform "manylinux_2_${minor}_$(uname -m)"); done
  [ -t 2 ] || quiet=(--quiet)
  make_cache
  exec 8>"$cache/.lock" && flock 8
  [ ! -d "$target" ] || { exec 8>&-; return; }
  rm -rf "$target.part" && mkdir -p "$target.part/tmp"
  say "fetching LibTorch $torch_release into $target"
  TMPDIR=$target.part/tmp PIP_ROOT_USER_ACTION=ignore "$(python_with pip)" -m pip install "${quiet[@]}" \
    --disable-pip-version-check --no-cache-dir --no-compile --no-deps --target "$target.part" --only-binary=:all: \
    --implementation cp --python-version 3.11 --abi cp311 "${platforms[@]}" "torch==$torch_release" \
    'nvidia-cuda-cupti~=13.0' 'nvidia-cuda-runtime~=13.0' >&2 ||
    { rm -rf "$target.part"; die "could not download LibTorch (see above)"; }
  (cd "$target.part" && rm -rf tmp bin functorch torchgen torch/lib/libtorch_{cuda,python,nvshmem}* &&
    find torch -mindepth 1 -maxdepth 1 ! -name include ! -name lib ! -name version.py -exec rm -rf {} +)
  mv -T "$target.part" "$target"
  exec 8>&-
}
