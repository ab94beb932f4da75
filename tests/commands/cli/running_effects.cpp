#include "tests/commands/cli/flag_effects.h"

namespace moe {
namespace {

using enum Effect;

Effects microbench() {
  const std::string range = "--min-bytes 64K --max-bytes 1M", steps = "--step-factor 4; --step-bytes 64K";
  Effects e;
  add(e, parsed, "",
      "--cluster testbed-a; --op alltoall; --op saa; --op 2dh; --op host_copy; --repetitions 2; --min-bytes 64K; "
      "--max-bytes 1M; --iterations 2; "
      "--warmup "
      "3; --check 0; "
      "--dtype float64; --modules; --kernels; --out o.jsonl; --overwrite; --json");
  add(e, parsed, range, steps);
  add(e, refused, "--min-bytes 64K", steps);
  add(e, refused, range + " --step-bytes 64K", "--step-factor 4");
  add(e, refused, "", "--warmup 0; --check 2; --op alltoal; --op expert");
  add(e, refused, "--kernels", "--cluster testbed-a; --op gemm; --min-bytes 64K; --iterations 2; --modules");
  add(e, parsed, "--kernels", "--device cuda; --out o.jsonl; --overwrite");
  add_ranks(e);
  return e;
}

// Of the verbs that run one layer, or several that are alike.
void add_layers_that_run(Effects& e) {
  add(e, parsed, "", kSizes + "; --cp-exchange ring");
  add(e, parsed, "", "--recompute selective; --recompute full; --offload experts; --attention torch");
  add(e, refused, "", "--recompute some; --offload some; --attention flash");
  add(e, parsed, "",
      "--capacity-rounding tutel; --heads 32; --gate switch; --order gshard; --dispatcher 2dh; --hook bf16; "
      "--norm none; --no-residual; --no-causal; --bias; --aux-loss 0.01; --z-loss 0.01; --rope-theta 10000; --window "
      "64; --parts 2; --first-stage-layers 2; --last-stage-layers 2; --q-lora-rank 64; --kv-lora-rank 64; "
      "--qk-nope-head-dim 8; --qk-rope-head-dim 8; --v-head-dim 8; "
      "--dtype "
      "float64; --dp 8; --pp "
      "2; "
      "--placement ep-inside; --cluster testbed-a; --schedule fsmoe; --degree-forward 2; --degree-backward 2; "
      "--micro-op-bytes 1000; --min-chunk-bytes 1000; --nearest; --seed 7; --trace t; --tasks; --out o.jsonl; "
      "--overwrite; --json");
  add(e, parsed, "--trace t", "--trace-layers 2; --trace-micro-batches all");
  add(e, refused, "", "--trace-layers 2; --trace-micro-batches all");
}

Effects layerbench() {
  Effects e;
  add_layers_that_run(e);
  add(e, parsed, "",
      "--layer example; --grid fsmoe-b; --iterations 2; --workload balanced; --dump d; "
      "--record-routing r.csv; --check-only");
  add(e, parsed, "--grid fsmoe-b", "--grid-layers 2; --drawn 2; --only x");
  add(e, refused, "--grid fsmoe-b", "--only x");
  add(e, parsed, "--degree-forward 1 --degree-backward 1", "--no-predict");
  add(e, refused, "", "--no-predict; --slow some:2; --slow expert:0.5");
  add(e, parsed, "", "--slow expert:1.5");
  add(e, refused, "--cluster host", "--slow expert:2:99");
  add(e, refused, "--cluster testbed-b", "--slow expert:2");
  add(e, parsed, "", "--serve; --graphs; --profile");
  const std::string serving =
      "--skew 1; --correlation 0.1; --drift 1; --path-length 1; --pack 2; --swap-gb-per-s 1; "
      "--variant ideal; --batches 8; --routing t.csv; --write-profile written";
  add(e, parsed, "--serve", serving);
  add(e, refused, "", serving);
  add(e, refused, "--serve",
      "--grid fsmoe-b; --schedule fsmoe; --micro-batches 2; --plan plan.json; --degree-forward 2; --check-only; "
      "--tasks; "
      "--workload balanced; --trace t; --dump d; --record-routing r.csv; --slow expert:2; --graphs; --skew 11");
  for (const char* here : {"--cluster host", "--cluster host --device cuda", "--device cuda", "--layers 2"})
    add(e, refused, here, "--graphs");
  add(e, refused, "--cluster host", "--profile; --attention torch");
  add(e, parsed, "", "--layers 2; --micro-batches 2; --pipeline 1f1b; --virtual-stages 2");
  add(e, refused, "--grid fsmoe-b",
      "--layers 2; --micro-batches 2; --pipeline 1f1b; --virtual-stages 2; --recompute selective; --offload "
      "experts; --record-routing r.csv");
  add(e, refused, "", "--grid-layers 2; --drawn 2");
  add(e, refused, "--grid fsmoe-b --drawn 2", "--grid-layers 2; --only x");
  add(e, parsed, "", "--plan plan.json");
  add(e, refused, "--seq 64", "--plan plan.json");
  add(e, refused, "--check-only", "--iterations 2; --trace t; --tasks; --graphs; --profile");
  add(e, refused, "--json", "--tasks");
  add(e, parsed, "--experts 4 --schedule fsmoe --out o.jsonl", "--against torch");
  add(e, refused, "--experts 4 --schedule fsmoe,tutel --out o.jsonl", "--against torch");
  for (const char* other : {"--cluster host", "--grid fsmoe-b", "--mp 2", "--seed 7", "--json"})
    add(e, refused, other, "--against torch");
  add(e, refused, "", "--against jax");
  add_ranks(e);
  return e;
}

Effects modelbench() {
  Effects e;
  add_layers_that_run(e);
  add(e, parsed, "",
      "--model mixtral-7b; --layers 2; --micro-batches 2; --pipeline 1f1b; --virtual-stages 2; --steps 7; --text "
      "bytes; --markov-order 3; "
      "--optimizer sgd; --learning-rate 0.1; --warm-up 3; --weight-decay 0.1; --clip-norm 0; --held-out 0; --zero 1");
  add(e, refused, "", "--zero 2; --online-packing");
  add(e, parsed, "--schedule lina-packed --steps 12", "--online-packing");
  add(e, parsed, "--optimizer sgd", "--momentum 0.5");
  add(e, refused, "", "--momentum 0.5; --steps 0; --markov-order 5");
  add(e, refused, "--text bytes", "--markov-order 3");
  add(e, refused, "--json", "--tasks");
  add(e, parsed, "", "--checkpoint kept");
  add(e, parsed, "--checkpoint kept", "--checkpoint-every 4");
  add(e, parsed, "",
      "--check-only; --dump d; --record-routing r.csv; --peak-flops 3e14; --weights w; --save-weights s; "
      "--save-plan s; --plan plan.json");
  add(e, refused, "--layers 2", "--plan plan.json");
  add(e, refused, "--check-only",
      "--steps 2; --trace t; --tasks; --optimizer sgd; --learning-rate 0.1; --warm-up 3; --weight-decay 0.1; "
      "--clip-norm 0; --held-out 0; --checkpoint kept; --peak-flops 1e12");
  add_ranks(e);
  return e;
}

const std::string kLaunches = "--launcher nice; --delta 5; --timeout 3; --seed 7; --metric number; --unit ms";

Effects ab() {
  Effects e;
  add(e, parsed, "",
      kLaunches +
          "; --base other; --head other; --base-flags x; --head-flags x; --cases tiny; --floor f; --strict; "
          "--out o.jsonl; --overwrite; --markdown; --json");
  return e;
}

Effects self_test() {
  Effects e;
  add(e, parsed, "",
      kLaunches +
          "; --base other; --cases tiny; --gates 2; --resamples 30; --simulate; --out o.jsonl; --overwrite; "
          "--json");
  add(e, refused, "--simulate", "--cases tiny --simulate; --gates 3 --simulate");
  return e;
}

Effects doctor() {
  Effects e;
  add(e, parsed, "", "--strict");
  add(e, changes, "", "--all; --json");
  return e;
}

}  // namespace

EffectsOfVerbs effects_of_running() {
  return {{"microbench", microbench()}, {"layerbench", layerbench()}, {"modelbench", modelbench()}, {"ab", ab()},
          {"self-test", self_test()},   {"doctor", doctor()}};
}

}  // namespace moe
