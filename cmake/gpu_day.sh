#!/usr/bin/env bash
# Runs all GPU tests and measurements of this checkout, on a machine with nvcc, CMake, ninja, g++ and torch but without a
# network; stage_dependencies.sh provides other libraries. `cmake/gpu_day.sh --help` prints the usage.
set -uo pipefail

script=$(readlink -f "${BASH_SOURCE[0]}")
root=$(dirname "$(dirname "$script")")
build=$root/build/cuda
work=$root/build/gpu_day
logs=$work/logs
records=$work/records
built=$build/built_by_gpu_day  # exists after a successful compilation
most_packed=$((16 << 20)) most_log=$((1 << 20))

# Part, stage, the most seconds that it may take, what it needs of the machine. The most telling come first; those up to
# check are the day, in 12 minutes.
stages='env     machine      60  nothing
build   configure   120  nothing
build   compile     580  nothing
test    tests       560  gpu
rows    modules     200  gpu
train   models      200  gpu
ranks   nccl        200  gpu
layers  unpaced     300  gpu
check   memcheck    300  gpu
check   racecheck   300  gpu
bench   kernels     300  gpu
bench   ops         300  gpu
bench   paced       200  gpu
bench   attention   200  gpu
bench   grid        300  gpu
profile occupancy   400  gpu'
of_day='env build test rows train ranks layers check'
day_s=720

usage() {
  cat <<TEXT
usage: cmake/gpu_day.sh [--within SECONDS] [--resume] [--out FOLDER] PART|STAGE...

Builds what needs a GPU, tests it, times it and looks into it, stage by stage; a stage that fails does not end the
others. Logs, records and a summary are packed into FOLDER (build/gpu_day/packed). Stages that ran before and are not
asked for again keep their results, so that parts may be run one by one.

  env      the machine, its tools and libraries
  build    configure, compile: programs and tests for the GPUs of this machine alone, into build/cuda
  test     the tests labelled gpu; one that is skipped beside a visible GPU has failed
  rows     modules: tasks of the layers of published models on one rank, fitted to configs/clusters/GPU-measured.toml
  train    models: training of GPT-2 and of a part of Qwen3-30B-A3B, predicted by these rows beside measured
  ranks    nccl: a layer of one rank; collectives, layers and models of four ranks that share the GPU (NCCL 2.30)
  layers   unpaced: a layer under schedules, predicted beside measured
  check    memcheck, racecheck: compute-sanitizer on small cases
  bench    kernels, ops: orders and experts, GEMMs and collectives of four ranks on one GPU
           paced, grid: layers under schedules, predicted beside measured
           attention: a layer of long sequences, by our attention and by LibTorch's
  profile  occupancy: Nsight Compute's occupancy and bandwidth of our kernels
  day      $of_day, within $day_s seconds
  all      each of these

  --within SECONDS  ends in time: a stage gets what is left, and is not begun where nothing is
  --resume          leaves out the stages that ended well before, and goes on with the records of the others
Exit code: 0 all is well; 1 a stage failed; 2 bad flags; 77 nvcc or the GPU is missing.
TEXT
}

die() { echo "gpu_day: $1" >&2; exit "${2:-2}"; }
gpus() {
  nvidia-smi -L 2>/dev/null | grep '^GPU ' || [ ! -e /dev/nvidiactl ] || echo 'a GPU that nvidia-smi does not name'
}
nvcc_path() { command -v "${CUDACXX:-nvcc}" || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; }

# One line a stage that ran: its name, how it ended, seconds, and why or what it found.
result_of() { awk -F '\t' -v stage="$1" '$1 == stage {line = $0} END {if (line) print line}' "$work/results.tsv"; }
keep_result() {
  local others
  others=$(grep -v "^$1"$'\t' "$work/results.tsv")
  { [ -z "$others" ] || echo "$others"; printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4:0:90}"; } >"$work/results.new"
  mv "$work/results.new" "$work/results.tsv"
  printf '%-10s %-7s %5s s  %s\n' "$1" "$2" "$3" "${4:0:90}" >&2
}

run_stage() {
  local stage=$1 limit=$2 needs=$3 left begun=$SECONDS code log=$logs/$1.log how
  [ "$needs" != gpu ] || [ -n "$visible" ] || { keep_result "$stage" no-gpu 0 "there is no GPU to see"; return; }
  if [ "$needs" = gpu ] && [ ! -e "$built" ]; then
    keep_result "$stage" failed 0 "found no build in build/cuda, expected one of the part build, which succeeded"
    return
  fi
  if [ -n "$within" ]; then
    left=$((within - SECONDS))
    if [ "$left" -lt 5 ]; then  # keeps the result of an earlier call
      unbegun=1
      [ -n "$(result_of "$stage")" ] || keep_result "$stage" unbegun 0 "--within $within left no time for it"
      return
    fi
    [ "$left" -ge "$limit" ] || limit=$left
  fi
  timeout --kill-after=10 "$limit" bash "$script" ${resume:+--resume} --stage "$stage" >"$log" 2>&1 </dev/null
  code=$?
  case $code in
    0) how=ok ;;
    75) how=skipped ;;
    124 | 137) how=timeout && echo "ended after $limit s" >>"$log" ;;
    *) how=failed && echo "exit code $code: $(grep . "$log" | tail -n 1)" >>"$log" ;;
  esac
  keep_result "$stage" "$how" $((SECONDS - begun)) "$(grep . "$log" | tail -n 1 | sed -E 's/^(note|skipped): //')"
}

# Packs all results; if records are too large, leaves out the largest.
pack() {
  local log packed=$work/packing.tar.gz largest
  rm -rf "$work/pack" && mkdir -p "$work/pack" "$out"
  cp -r "$logs" "$records" "$work/pack/"
  for log in "$work"/pack/logs/*; do
    [ "$(stat -c %s "$log")" -le "$most_log" ] || { tail -c "$most_log" "$log" >"$log.end" && mv "$log.end" "$log"; }
  done
  left_out=''
  while tar -C "$work/pack" -czf "$packed" . && [ "$(stat -c %s "$packed")" -gt "$most_packed" ]; do
    largest=$(cd "$work/pack" && find . -type f -printf '%s %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-)
    rm "$work/pack/$largest"
    left_out+=" ${largest#./}"
  done
  mv "$packed" "$out/gpu_day.tar.gz"
}

# At most 24 lines.
summary() {
  local part stage limit needs
  echo "commit $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown), $(date -u +%FT%TZ)"
  echo "$(gpus | head -n 1 | sed 's/ (UUID.*//' | grep . || echo 'no GPU'), nvcc $(
    "$(nvcc_path || echo false)" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
  while read -r part stage limit needs; do
    result_of "$stage" | awk -F '\t' '{printf "%-10s %-7s %5s s  %s\n", $1, $2, $3, $4}'
  done <<<"$stages"
  awk -F '\t' '{seconds += $3; ends[$2]++} END {printf "%d s:", seconds; for (e in ends) printf " %d %s", ends[e], e
    print ""}' "$work/results.tsv"
  [ -z "$left_out" ] || echo "too large to pack:$left_out"
}

out=$work/packed within='' resume='' asked=()
while [ $# -gt 0 ]; do
  case $1 in
    --stage)  # a separate process, so that it can be ended
      source "$root/cmake/gpu_stages.sh"
      "stage_$2"
      exit
      ;;
    --help | -h) usage; exit 0 ;;
    --out | --within)
      [ $# -gt 1 ] || die "$1: found no value after it, expected a $([ "$1" = --out ] && echo folder || echo number)"
      if [ "$1" = --out ]; then out=$2; else within=$2; fi
      shift
      ;;
    --resume) resume=1 ;;
    -*) die "$1: found an unknown flag, expected one of: --within, --resume, --out, --help" ;;
    *) asked+=("$1") ;;
  esac
  shift
done
[[ -z "$within" || "$within" =~ ^[1-9][0-9]*$ ]] || die "--within: found '$within', expected seconds, a whole number"
known=" all day $(awk '{print $1; print $2}' <<<"$stages" | awk '!seen[$0]++' | paste -sd ' ') "
[ ${#asked[@]} -gt 0 ] || die "found no part, expected one or more of:${known% }"
for part in "${asked[@]}"; do
  [[ $known == *" $part "* ]] || die "found part '$part', expected one or more of:${known% }"
done
if [[ " ${asked[*]} " == *" day "* ]]; then
  asked+=($of_day)
  within=${within:-$day_s}
fi
chosen=()
while read -r part stage limit needs; do
  for one in "${asked[@]}"; do
    [ "$one" != all ] && [ "$one" != "$part" ] && [ "$one" != "$stage" ] || { chosen+=("$stage $limit $needs"); break; }
  done
done <<<"$stages"
if printf '%s\n' "${chosen[@]}" | grep -qE '^(configure|compile) ' && ! nvcc_path >/dev/null; then
  die "found no nvcc in PATH, CUDACXX, CUDA_HOME or /usr/local/cuda, expected a CUDA toolkit" 77
fi

mkdir -p "$logs" "$records"
touch "$work/results.tsv"
visible=$(gpus)
unbegun=0
export CUDA_DEVICE_MAX_CONNECTIONS=32
for one in "${chosen[@]}"; do
  read -r stage limit needs <<<"$one"
  [ -z "$resume" ] || [[ ! $(result_of "$stage" | cut -f 2) =~ ^(ok|skipped)$ ]] || continue
  run_stage "$stage" "$limit" "$needs"
  pack  # packs already now, in case this call is ended later
  summary >"$out/summary.txt"
done
cat "$out/summary.txt"
echo "packed into $out" >&2
ended=$(for one in "${chosen[@]}"; do result_of "${one%% *}" | cut -f 2; done)
[ "$unbegun" = 0 ] && ! grep -qE '^(failed|timeout)$' <<<"$ended" || exit 1
! grep -q '^no-gpu$' <<<"$ended" || exit 77
