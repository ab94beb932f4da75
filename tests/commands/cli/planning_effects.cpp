#include "tests/commands/cli/flag_effects.h"

namespace moe {
namespace {

using enum Effect;

// Of the verbs that plan one layer or a model, which is what `base` leaves open.
void add_planned(Effects& e, const std::string& base, const std::string& described) {
  add(e, changes, base, kSizes);
  add(e, changes, base + " --cp 2", "--cp-exchange ring");
  add(e, refused, base, "--cp-exchange ring");
  add(e, refused, base + " --cp 2", "--cp-exchange p2p");
  add(e, changes, base + " --seq 8 --batch 1", "--capacity-rounding deepspeed");
  add(e, changes, base + " --model-dim 1600", "--heads 25");
  add(e, changes, base,
      "--hook bf16; --layer ./layer.toml; --cluster testbed-a; --degree-forward 3; --degree-backward 3; "
      "--nodes 4; --model gpt-2; --layers 2; --micro-batches 2; --bias; --norm none");
  add(e, describes, base, described);
  add(e, changes, base + " --cluster ./more.toml",
      "--gate switch; --order gshard; --dispatcher 2dh; --dtype bfloat16; --placement ep-inside");
  add(e, refused, base, "--dp 3");
  add(e, changes, base + " --layers 3 --micro-batches 2", "--pipeline gpipe; --parts 2");
  add(e, refused, base + " --layers 3", "--parts 3; --parts 0");
  add(e, changes, base + " --cluster h100-8 --layers 4 --micro-batches 2 --pp 2",
      "--virtual-stages 2; --first-stage-layers 3; --last-stage-layers 3");
  add(e, refused, base + " --layers 4", "--first-stage-layers 2; --last-stage-layers 2");
  add_latent_widths(e, base);
}

Effects simulate() {
  const std::string base = "--schedule fsmoe --nearest --json";
  Effects e;
  add_planned(e, base, "--no-residual; --no-causal; --aux-loss 0.01; --z-loss 0.01; --rope-theta 10000");
  add(e, changes, base, "--jitter 0.1; --jitter 0; --straggler 3:1.5");
  add(e, changes, base, "--zero 1; --recompute selective; --recompute full; --window 128");
  add(e, refused, base, "--parts 2; --offload experts; --offload foo");
  add(e, changes, base + " --cluster ./more.toml --layers 3", "--offload experts");
  add(e, changes, base + " --cluster h100-8", "--framework torchtitan");
  add(e, refused, base + " --model-dim 1600 --heads 25", "--framework megatron");
  add(e, changes, base, "--node-limit 4; --router-groups 4 --node-limit 2");
  add(e, changes, base + " --node-limit 2", "--router-groups 4");
  add(e, refused, base, "--router-groups 4; --router-groups 3 --node-limit 2");
  add(e, refused, base, "--pp 2; --zero 2; --recompute some; --node-limit 8; --node-limit 0");
  add(e, changes, "--json", "--schedule fsmoe");
  add(e, changes, "--schedule fsmoe,monta,lina --json", "--min-chunk-bytes 100000000; --micro-op-bytes 100000");
  add(e, refused, base, "--min-chunk-bytes 1; --micro-op-bytes 1000");
  add(e, changes, "--ep 4 --schedule fsmoe", "--nearest");
  const std::string model = base + " --layers 3 --micro-batches 2";
  add(e, changes, model, "--partition none; --jitter 0.1; --straggler 3:1.5");
  add(e, refused, model, "--pipeline zb; --partition some; --straggler 9999:5; --zipf 1; --out written");
  add(e, refused, base,
      "--pipeline 1f1b; --pipeline foo; --partition exact; --partition foo; --straggler 9999:5; --zipf 1; --samples 3; "
      "--seed 3; --sweep-degrees");
  add(e, refused, base + " --layers 3", "--pipeline 1f1b");
  add(e, refused, base, "--virtual-stages 2");
  add(e, changes, base + " --capacity-factor none", "--zipf 1");
  add(e, changes, model + " --capacity-factor none", "--zipf 1");
  add(e, refused, base + " --capacity-factor none --gate softmoe", "--zipf 1");
  add(e, changes, base + " --jitter 0.1", "--samples 3; --seed 3");
  add(e, refused, base + " --straggler 3:2", "--samples 3");
  add(e, writes, base, "--trace written; --out written; --sweep-degrees --out written");
  add(e, writes, base, "--save-plan written");
  add(e, writes, model, "--save-plan written");
  add(e, refused, "--schedule fsmoe,tutel", "--save-plan written");
  add(e, refused, "--schedule fsmoe,tutel --layers 2", "--save-plan written");
  add(e, parsed, "--out o.jsonl", "--overwrite");
  add(e, refused, base, "--overwrite");
  const std::string part = "--trace-layers 1 --trace written; --trace-micro-batches 1 --trace written";
  add(e, writes, model, "--trace written; " + part);
  add(e, refused, model, "--trace-layers 1; --trace-micro-batches all; --trace-layers 0 --trace written");
  add(e, changes, "--schedule fsmoe", "--json");
  add(e, changes, "--schedule fsmoe,tutel", "--gantt 1");
  add(e, refused, "--schedule fsmoe", "--gantt some; --gantt -1; --gantt 2 --json; --gantt 2 --layers 2");
  add(e, changes, "--json", "--plan plan.json");
  add(e, changes, "--plan plan.json", "--json");
  add(e, refused, "--batch 2", "--plan plan.json");
  const std::string small = "--cluster h100-8 --dtype bfloat16 --layers 5 --batch 1 --seq 32 --json";
  const std::string served = small + " --batches 6 --serve";
  add(e, changes, small, "--serve");
  add(e, changes, served,
      "--skew 1; --correlation 0.1; --drift 1; --path-length 1; --pack 2; --swap-gb-per-s 1; --seed 2; --variant "
      "ideal");
  add(e, changes, small + " --serve", "--batches 8");
  add(e, writes, served, "--write-profile written; --out written");
  add(e, refused, served + " --skew 1", "--routing trace.csv");
  add(e, refused, served,
      "--top-k 2; --pack 0; --path-length 5; --schedule fsmoe; --jitter 0.1; --trace t; --zero 1; "
      "--variant lina");
  add(e, refused, small, "--variant ideal; --skew 1; --routing trace.csv; --pack 2; --write-profile written");
  return e;
}

Effects memory() {
  const std::string base = "--json", stages = "--model mixtral-7b --layers 4 --pp 2 --json";
  Effects e;
  add(e, changes, base, kSizes);
  add(e, changes, base + " --cp 4", "--cp-exchange ring");
  add(e, refused, base, "--cp-exchange ring");
  add(e, changes, base + " --seq 8 --batch 1", "--capacity-rounding deepspeed");
  add(e, changes, base,
      "--heads 32; --cluster testbed-a; --layer ./layer.toml; --model gpt-2; --layers 2; --dtype bfloat16; --norm "
      "none; "
      "--gate xmoe; --order gshard; --hook bf16; --bias; --nodes 4; --memory-gib 80; --zero 1; --recompute full; "
      "--offload experts; --parm; --parts 2");
  add(e, describes, base,
      "--dispatcher 2dh; --no-residual; --no-causal; --aux-loss 0.01; --z-loss 0.01; "
      "--rope-theta 10000; --window 128; --placement ep-inside");
  add(e, changes, stages, "--micro-batches 4");
  add(e, changes, stages + " --micro-batches 8", "--pipeline 1f1b; --virtual-stages 2");
  add(e, changes, stages, "--first-stage-layers 1; --last-stage-layers 1");
  add(e, refused, stages, "--first-stage-layers 4; --last-stage-layers 5");
  add(e, refused, stages + " --micro-batches 3", "--virtual-stages 2");
  add(e, changes, base + " --layers 4", "--pp 2");
  add(e, refused, base, "--dp 3; --pipeline 1f1b; --pipeline foo");
  add(e, refused, base, "--nodes 0");
  add_latent_widths(e, base);
  add(e, refused, "--parm", "--nodes 4; --batch 2; --cluster testbed-a; --zero 1");
  add(e, changes, "--parm --json", "--top-k 1; --experts 8");
  add(e, changes, base, "--framework deepspeed");
  add(e, changes, stages, "--framework megatron; --framework torchtitan");
  add(e, changes, base, "--framework tutel");
  add(e, refused, stages + " --micro-batches 8 --pipeline gpipe", "--framework megatron");
  add(e, changes, "", "--json");
  return e;
}

Effects model() {
  Effects e;
  e.emplace("MODEL", FlagEffect{changes, "gpt-2", "mixtral-7b"});
  add(e, changes, "gpt-2", "--json");
  return e;
}

Effects placement() {
  Effects e;
  add(e, changes, "--json", "--tp 4; --ep 4; --cp 16; --pp 2; --dp 2; --ranks-per-node 16; --switch-ports 16");
  add(e, changes, "", "--json");
  return e;
}

Effects tune() {
  const std::string grid = "--no-verify --grid ./few.toml", two = " --schedule tutel,fsmoe";
  const std::string base = grid + two + " --json", some = grid + " --schedule monta,lina --json";
  Effects e;
  add(e, changes, base, "--cluster testbed-a; --degree-forward 3; --degree-backward 3");
  add(e, changes, some, "--min-chunk-bytes 100000000; --micro-op-bytes 100000");
  add(e, refused, base, "--min-chunk-bytes 1; --micro-op-bytes 1000");
  add(e, changes, base + " --cluster ./half.toml", "--nearest");
  e.emplace("--grid", FlagEffect{changes, base, "--no-verify --grid ./other.toml" + two + " --json"});
  add(e, changes, grid + " --json", "--schedule fsmoe");
  add(e, changes, grid + two, "--json");
  add(e, changes, base, "--strategy-layers 1");
  add(e, refused, "", "--strategy-layers 3");
  add(e, writes, base, "--trace written; --out written; --trace-layers 1 --trace written");
  add(e, parsed, "--trace t", "--trace-micro-batches 2");
  add(e, parsed, "", "--overwrite; --strict; --no-verify; --measure 3; --measure-degrees; --iterations 2; --seed 7");
  add(e, refused, base,
      "--measure 3; --measure-degrees; --iterations 2; --seed 7; --timeout 3; --backend gloo; --device cpu; --threads "
      "2");
  const std::string one = "--no-verify --schedule fsmoe --nearest --layers 2 --json";
  add_planned(e, "--no-verify --schedule fsmoe --nearest --no-residual --json",
              "--no-causal; --aux-loss 0.01; --z-loss 0.01; --rope-theta 10000");
  add(e, parsed, "", "--no-residual");
  add(e, changes, one,
      "--window 128; --parts 2; --shape auto; --global-batch 64; --current tutel:2; --zero 1; --recompute selective");
  add(e, changes, "--no-verify --nearest --layers 2 --json", "--framework tutel");
  add(e, parsed, "", "--zero 1; --recompute selective; --offload experts");
  add(e, refused, one, "--offload experts; --offload foo");
  add(e, changes, one + " --cluster ./more.toml", "--offload experts");
  add(e, changes, one, "--node-limit 4; --router-groups 4 --node-limit 2");
  add(e, refused, "", "--node-limit 4; --router-groups 4; --nodes 4");
  add(e, changes, one + " --current tutel", "--measured 2");
  add(e, refused, one, "--measured 2");
  add(e, refused, one, "--pp 3");
  add(e, changes, "--no-verify --batch 2", "--top 2");
  add(e, refused, grid, "--shape auto; --global-batch 64; --framework tutel; --current tutel; --top 3");
  add(e, refused, one,
      "--grid ./few.toml; --strategy-layers 2; --shape many; --global-batch 3; --framework tutle; --framework "
      "megatron; --current tutle; --top 0");
  add(e, refused, "--model gpt2-xl", "--measure 3; --measure-degrees");
  add(e, changes, "--no-verify --batch 2", "--all");
  add(e, parsed, "", "--attention torch");
  add_ranks(e);
  return e;
}

Effects reproduce() {
  Effects e;
  e.emplace("TABLE", FlagEffect{changes, "monta-fig13", "monta-table8"});
  add(e, changes, "lina-training", "--assume lina-a100");
  add(e, refused, "--audit", "--assume lina-a100");
  add(e, parsed, "", "--audit; --all; --overwrite; --runs r.csv");
  add(e, refused, "monta-fig13", "--runs r.csv");
  add(e, parsed, "--all", "--write w.md");
  add(e, refused, "monta-fig13", "--write w.md");
  add(e, writes, "monta-fig13", "--out written");
  add(e, changes, "monta-fig13", "--json");
  add(e, changes, "fsmoe-fig6", "--measure");
  add(e, refused, "monta-fig13", "--measure; --records no.jsonl");
  add(e, parsed, "", "--records r.jsonl");
  return e;
}

}  // namespace

EffectsOfVerbs effects_of_planning() {
  return {{"simulate", simulate()},   {"memory", memory()}, {"model", model()},
          {"placement", placement()}, {"tune", tune()},     {"reproduce", reproduce()}};
}

}  // namespace moe
