# The stages of a GPU day. Sourced by gpu_day.sh, which says when each runs, for how long, and keeps what it prints in
# $logs/STAGE.log. A stage ends with a line for the summary, "note: ..."; by skip where the machine refuses it; by any
# other exit code where it failed.

skip() { echo "skipped: $*"; exit 75; }
note() { echo "note: $*"; }
run() { echo "\$ $*"; "$@"; }

# Prints the path of a tool of the CUDA toolkit.
tool() {
  local place
  for place in "$(command -v "$1")" "$(dirname "$(nvcc_path)")/$1" /opt/nvidia/nsight-compute/*/"$1"; do
    [ ! -x "$place" ] || { echo "$place"; return; }
  done
  skip "there is no $1"
}

stage_machine() {
  local command
  for command in 'uname -srm' nproc 'free -g' "df -h '$root'" 'cmake --version' 'ninja --version' 'g++ --version' \
    "$(nvcc_path || echo nvcc) --version" nvidia-smi 'nvidia-smi -q' 'nvidia-smi topo -m' \
    'python3 -c "import torch; print(torch.__version__, torch.version.cuda)"' "'$root/moetune' --torch-dir"; do
    echo "\$ $command" && bash -c "$command" 2>&1 || echo "missing: ${command%% *} failed"
  done
  [ ! -x "$build/moetune" ] || run "$build/moetune" doctor --all || true
  note "$(nproc) cores, $(gpus | sort | uniq -c | sed 's/ (UUID.*//; s/^ *//' | paste -sd, | grep . || echo 'no GPU')"
}

stage_configure() {
  local missing architectures
  missing=$(cd "$root" && ./moetune --missing) || die "./moetune --missing failed"
  if [ -n "$missing" ]; then
    sed 's/.*/missing: &/' <<<"$missing"
    die "missing: $(paste -sd ' ' <<<"$missing") (cmake/stage_dependencies.sh brings libraries)"
  fi
  architectures=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -E '^[0-9.]+$' | tr -d . |
    sort -u | paste -sd ';')
  cd "$root" || exit
  rm -f "$built"
  # Searches NCCL again, because it may have been staged since the last call.
  run cmake --preset cuda -U 'NCCL_*' ${architectures:+"-DCMAKE_CUDA_ARCHITECTURES=$architectures"} || exit
  note "for ${architectures:-every architecture that nvcc knows}"
}

stage_compile() {
  rm -f "$built"
  cd "$root" && run cmake --build --preset cuda --parallel "$(nproc)" --target moetune moetune-run gpu_tests \
    -- -k 0 || exit  # continues after errors, so that one log has all of them
  touch "$built"
  note "$(find "$build" -name '*.o' | wc -l) objects"
}

stage_tests() {
  local skipped passed xml=$records/tests.xml
  cd "$root" && run ctest --preset cuda --label-regex gpu --no-tests=error --output-junit "$xml" || exit
  skipped=$(sed -nE 's/.*Test +#[0-9]+: ([a-z_]+) .*Skipped.*/\1/p' "$logs/tests.log" | paste -sd ' ')
  [ -z "$skipped" ] || { echo "skipped beside a visible GPU: $skipped"; exit 1; }
  passed=$(grep -c ' Passed ' "$logs/tests.log")
  note "$passed passed, none skipped"
}

# Runs a verb with the records NAME. Earlier records are replaced or, with --resume, continued.
verb() {
  local name=$1 again=()
  shift
  [ -n "$resume" ] || again=(--overwrite)
  run "$build/moetune" "$@" --out "$records/$name.jsonl" "${again[@]}" || exit
}

# Notes how many cases the records NAME... have, of them those that are not ok, and what the others say: how far a
# schedule's time is off its prediction, or the least share that kernels reach of their bounds. None is a failure.
note_cases() {
  local name files=()
  for name in "$@"; do files+=("$records/$name.jsonl"); done
  python3 - "${files[@]}" <<'PYTHON' || exit
import json, pathlib, sys

cases = []
for name in sys.argv[1:]:
    of_last_run = []
    for record in map(json.loads, open(name)):
        if record.get("kind") == "run":
            of_last_run = []
        elif record.get("kind") == "case":
            of_last_run.append(record)
    cases += of_last_run
bad = [case["key"] for case in cases if case["status"] != "ok"]
names = " ".join(pathlib.Path(name).stem for name in sys.argv[1:])
if not cases:
    sys.exit(f"no records in {names}")
if bad:
    sys.exit(f"{len(bad)} of {len(cases)} records of {names} are not ok: {', '.join(bad[:3])}")
said, least = [], {}
for case in cases:
    summary, predicted = case.get("summary", {}), case.get("prediction", {})
    if "total_s" in summary and "total_s" in predicted:
        off = summary["total_s"] / predicted["total_s"] - 1
        said.append(f"{case['schedule']} {100 * off:+.1f} %")
    if summary.get("share", 1) < 1:
        words = case["parameters"]["kernel"].split()
        kind = "experts" if "experts" in words else "orders" if "order" in words[-1] + words[-2] else "dense"
        kind = "gates" if "top_k" in case["parameters"] else kind
        if words[2] != "gather":
            least[kind] = min(least.get(kind, 1), summary["share"])
said += [f"{kind} >= {100 * share:.0f} %" for kind, share in least.items()]
print("note:", ", ".join([f"{len(cases)} cases", *said]))
PYTHON
}

# Prints the name of this machine's GPU in presets, such as "h100"; nothing if no preset has this GPU.
gpu_name() {
  local name
  for name in h200 h100 b200 a100; do
    ! gpus | grep -qi "$name" || { echo "$name"; return; }
  done
}

# Times the tasks of models' layers on one rank, and writes two profiles: of this GPU alone, by which the models that
# train are predicted, and of its preset, with these rows in the place of the preset's model of its computations.
stage_modules() {
  local gpu measured
  verb modules launch --ranks 1 -- microbench --backend nccl --dtype bfloat16 --op gemm,module --repetitions 3 \
    --modules=gpt-2,gpt-2-dense,qwen3-30b-a3b,mixtral-7b,olmoe-1b-7b,gpt-oss-120b,deepseek-v3
  run "$build/moetune" fit --records "$records/modules.jsonl" --name one-gpu --out "$records/one-gpu.toml" || exit
  gpu=$(gpu_name)
  [ -n "$gpu" ] || { note_cases modules; note "no preset of this GPU"; return; }
  measured=$root/configs/clusters/$gpu-measured.toml
  run "$build/moetune" fit --records "$records/modules.jsonl" --network-from "$gpu-8" --name "$gpu-measured" \
    --out "$measured" || exit
  cp "$measured" "$records"
  note_cases modules
  note "wrote configs/clusters/$gpu-measured.toml"
}

stage_kernels() {
  verb kernels microbench --kernels --device cuda --repetitions 5
  note_cases kernels
}

stage_ops() {
  local dtype
  for dtype in float32 bfloat16; do
    verb "ops-$dtype" microbench --cluster host --device cuda --dtype "$dtype" --repetitions 3
  done
  note_cases ops-float32 ops-bfloat16
}

stage_paced() {
  verb paced layerbench --cluster testbed-b --device cuda --batch 2 --seq 256 --model-dim 1024 --hidden 2048 \
    --schedule fsmoe,tutel,ds-moe --tasks --trace "$records/paced.trace.json"
  note_cases paced
}

stage_unpaced() {
  verb unpaced layerbench --cluster host --device cuda --dtype bfloat16 --ffn mixtral --batch 1 --seq 1024 --heads 32 \
    --model-dim 4096 --hidden 14336 --schedule fsmoe,tutel --tasks --trace "$records/unpaced.trace.json"
  note_cases unpaced
}

# Runs a layer of long sequences with our attention and with LibTorch's.
stage_attention() {
  local by kinds='own torch'
  [ -e "$("$root/moetune" --torch-dir 2>/dev/null)/lib/libtorch_cuda.so" ] ||
    { kinds=own && echo "LibTorch has no CUDA half: our attention alone"; }
  for by in $kinds; do
    verb "attention-$by" layerbench --cluster host --device cuda --dtype bfloat16 --ffn mixtral --batch 1 --seq 4096 \
      --heads 32 --model-dim 4096 --hidden 2048 --schedule fsmoe --tasks --attention $by
  done
  note_cases $(printf 'attention-%s ' $kinds)
}

stage_grid() {
  verb grid layerbench --cluster host --device cuda --dtype bfloat16 --grid host-cuda --grid-layers 4 \
    --schedule fsmoe,tutel
  note_cases grid
}

# Trains models on one rank, gradients of the first step verified, predicted by the rows that stage modules measured.
stage_models() {
  local by=host
  [ ! -e "$records/one-gpu.toml" ] || by=$records/one-gpu.toml
  local trains=(launch --ranks 1 -- modelbench --backend nccl --cluster "$by" --dtype bfloat16 --schedule fsmoe --tasks)
  verb gpt-2-dense "${trains[@]}" --model gpt-2-dense --steps 100
  verb gpt-2 "${trains[@]}" --model gpt-2 --mp 1 --esp 1 --experts 8 --steps 100
  verb qwen3 "${trains[@]}" --model qwen3-30b-a3b --layers 2 --experts 16 --steps 20
  note_cases gpt-2-dense gpt-2 qwen3
}

# Runs a verb with four ranks, which share one GPU if the build's NCCL allows it.
four_ranks() {
  local name=$1 verb_name=$2
  shift 2
  NCCL_MULTI_RANK_GPU_ENABLE=1 verb "$name" launch --ranks 4 -- "$verb_name" --backend nccl --ranks-per-node 2 "$@"
}

stage_nccl() {
  export NCCL_DEBUG=WARN
  verb nccl-ops launch --ranks 1 -- microbench --backend nccl --op gemm --repetitions 3
  local ffn
  for ffn in mixtral mixtral-fp8; do
    verb "nccl-$ffn" launch --ranks 1 -- layerbench --backend nccl --dtype bfloat16 --ffn $ffn --batch 1 --seq 1024 \
      --heads 32 --experts 2 --model-dim 4096 --hidden 14336 --schedule fsmoe,tutel --tasks --graphs
  done
  note_cases nccl-ops nccl-mixtral nccl-mixtral-fp8
  if [ "$(gpus | wc -l)" -lt 4 ] && [ ! -e "$root/.staged/nccl/include/nccl.h" ]; then
    note "of four ranks nothing: one GPU, and no NCCL of cmake/nccl_for_one_gpu.sh"
    return
  fi
  four_ranks nccl-4-ops microbench --min-bytes 64K --max-bytes 16M --step-factor 16 --repetitions 3
  four_ranks nccl-4-layer layerbench --check-only --schedule ds-moe,tutel,fsmoe --model-dim 256 --hidden 512 --seq 128
  four_ranks nccl-4-model modelbench --check-only --model tiny-gpt --schedule fsmoe,tutel
  note_cases nccl-ops nccl-mixtral nccl-mixtral-fp8 nccl-4-ops nccl-4-layer nccl-4-model
}

# Runs the tests FILTER of the binary TEST under one of compute-sanitizer's tools. Each that is named has to pass: one
# that was skipped, or that a wrong filter missed, was not looked into.
sanitized() {
  local what=$1 test=$2 filter=$3 sanitizer name log=$logs/$1.log before
  before=$(wc -l <"$log")
  sanitizer=$(tool compute-sanitizer) || { echo "$sanitizer"; exit 75; }
  run "$sanitizer" --tool "$what" --error-exitcode 9 "$build/tests/$test" --gtest_filter="$filter"
  local code=$? refused
  if [ "$code" != 0 ]; then  # 9: the tool found an error
    refused=$(grep -m 1 -E 'Internal Sanitizer Error|not supported|No attachable process' "$log")
    [ "$code" = 9 ] || [ -z "$refused" ] || skip "$refused"
    exit "$code"
  fi
  for name in $(grep -oE '[A-Z][A-Za-z0-9]+' <<<"$filter"); do
    grep -q "OK .*$name" <(tail -n "+$((before + 1))" "$log") ||
      { echo "no test named $name passed of $filter"; exit 1; }
  done
}

stage_memcheck() {
  sanitized memcheck layer/cuda/layer_gpu_test '*CudaMathTest.*/float32:*CudaGemm*/*_float32:*CudaRows*:*CudaTopK*'
  sanitized memcheck layer/cuda/layer_gpu_test '*CudaGateTest.*/gshard_bfloat16:*CudaOrderTest.*/tutel_bfloat16'
  sanitized memcheck layer/cuda/layer_gpu_test '*CudaFp8Test.*/bfloat16:*CudaAssignedRows*'
  sanitized memcheck layer/cuda/layer_gpu_test '*CudaModelMathTest.*/float32'
  sanitized memcheck device/device_gpu_test '*CopiesManyBlocks*:*SumsInOrder*'
  note "no error"
}

stage_racecheck() {
  sanitized racecheck layer/cuda/layer_gpu_test '*CudaMathTest.Norms/float32:*CudaGateTest.*/switch_float32:*CudaTopK*'
  sanitized racecheck layer/cuda/layer_gpu_test '*CudaFp8Test.Rounds*/bfloat16:*CudaAssignedRows*'
  sanitized racecheck layer/cuda/layer_gpu_test '*CudaModelMathTest.*/bfloat16'
  sanitized racecheck layer/cuda/layer_gpu_test '*CudaOrderTest.*/tutel_float32:*CudaMathTest.*Softmax*/bfloat16'
  note "no hazard"
}

stage_occupancy() {
  local profiler csv=$records/occupancy.csv
  profiler=$(tool ncu) || { echo "$profiler"; exit 75; }
  local metrics=sm__warps_active.avg.pct_of_peak_sustained_active,launch__occupancy_limit_registers
  metrics+=,dram__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread,gpu__time_duration.sum
  : >"$csv"
  # Otherwise ncu would fix the clocks at their base frequency.
  run "$profiler" --clock-control none --target-processes all --filter-mode per-launch-config --launch-count 2 \
    --kernel-name-base demangled --kernel-name 'regex:moe::' --metrics "$metrics" --csv --log-file "$csv" \
    "$build/moetune" microbench --kernels --device cuda --repetitions 1 --out "$records/occupancy.jsonl" --overwrite
  local code=$? refused
  local refusals='ERR_NVGPUCTRPERM|driver resource was unavailable|not supported|LibraryNotLoaded'
  local launches
  launches=$(grep -c 'sm__warps_active' "$csv")
  if [ "$code" != 0 ] || [ "$launches" = 0 ]; then
    refused=$(grep -hoE "$refusals" "$csv" "$logs/occupancy.log")
    [ -z "$refused" ] || skip "ncu: $(head -n 1 <<<"$refused")"
    echo "ncu ended with $code and profiled $launches launches"
    exit 1
  fi
  note "$launches launches"
}
