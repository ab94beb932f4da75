#include "tests/cli/flag_effects.h"

#include <sstream>

namespace moe {
namespace {

using Effects = std::multimap<std::string, FlagEffect>;
using enum Effect;

// Flags with their values, separated by semicolons, each alone beside what stands there anyway.
void add(Effects& effects, Effect effect, const std::string& base, const std::string& flags) {
  std::istringstream list(flags);
  for (std::string flag; std::getline(list >> std::ws, flag, ';');) {
    std::string with = base;
    with += (base.empty() ? "" : " ") + flag;
    effects.emplace(flag.substr(0, flag.find(' ')), FlagEffect{effect, base, with});
  }
}

// Sizes and groups, which change bytes and times. Groups of other sizes than the profile's borrow their rows.
const std::string kSizes =
    "--batch 8; --seq 256; --model-dim 2048; --hidden 8192; --kv-heads 4; --experts 16; --top-k 1; "
    "--capacity-factor 2; --ffn mixtral; --mp 2; --ep 4; --esp 2";

// Of the verbs that plan one layer or a model, which is what `base` leaves open.
void add_planned(Effects& e, const std::string& base, const std::string& described) {
  add(e, changes, base, kSizes);
  add(e, changes, base + " --seq 8 --batch 1", "--capacity-rounding deepspeed");
  add(e, changes, base + " --model-dim 1600", "--heads 25");
  add(e, changes, base,
      "--hook bf16; --layer ./layer.toml; --cluster testbed-a; --degree-forward 3; --degree-backward 3; "
      "--model gpt-2; --layers 2; --micro-batches 2");
  add(e, describes, base, described);
  add(e, changes, base + " --cluster ./more.toml",
      "--gate switch; --order gshard; --dispatcher 2dh; --dtype bfloat16; --placement ep-inside");
  add(e, refused, base, "--dp 3");
  add(e, changes, base + " --layers 3 --micro-batches 2", "--pipeline 1f1b");
}

Effects simulate() {
  const std::string base = "--schedule fsmoe --nearest --json";
  Effects e;
  add_planned(e, base, "--norm none; --no-residual; --aux-loss 0.01; --z-loss 0.01");
  add(e, changes, base, "--pp 2; --jitter 0.1; --straggler 3:1.5");
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
  add(e, changes, base + " --capacity-factor none", "--zipf 1");
  add(e, changes, model + " --capacity-factor none", "--zipf 1");
  add(e, refused, base + " --capacity-factor none --gate softmoe", "--zipf 1");
  add(e, changes, base + " --jitter 0.1", "--samples 3; --seed 3");
  add(e, refused, base + " --straggler 3:2", "--samples 3");
  add(e, writes, base, "--trace written; --out written; --sweep-degrees --out written");
  add(e, parsed, "--out o.jsonl", "--overwrite");
  add(e, refused, base, "--overwrite");
  add(e, writes, model, "--trace written");
  add(e, changes, "--schedule fsmoe", "--json");
  add(e, changes, "--json", "--plan plan.json");
  add(e, changes, "--plan plan.json", "--json");
  add(e, refused, "--batch 2", "--plan plan.json");
  return e;
}

Effects memory() {
  const std::string base = "--json", stages = "--model mixtral-7b --layers 4 --pp 2 --json";
  Effects e;
  add(e, changes, base, kSizes);
  add(e, changes, base + " --seq 8 --batch 1", "--capacity-rounding deepspeed");
  add(e, changes, base,
      "--heads 32; --cluster testbed-a; --layer ./layer.toml; --model gpt-2; --layers 2; --dtype bfloat16; --norm "
      "none; "
      "--gate xmoe; --memory-gib 80; --zero 1; --recompute full; --parm");
  add(e, describes, base,
      "--order gshard; --dispatcher 2dh; --hook bf16; --no-residual; --aux-loss 0.01; --z-loss 0.01; "
      "--placement ep-inside");
  add(e, changes, stages, "--micro-batches 4");
  add(e, changes, stages + " --micro-batches 8", "--pipeline 1f1b");
  add(e, changes, base + " --layers 4", "--pp 2");
  add(e, refused, base, "--dp 3; --pipeline 1f1b; --pipeline foo");
  add(e, refused, "--parm", "--batch 2; --cluster testbed-a; --zero 1");
  add(e, changes, "--parm --json", "--top-k 1; --experts 8");
  add(e, changes, "", "--json");
  return e;
}

Effects placement() {
  Effects e;
  add(e, changes, "--json", "--tp 4; --ep 4; --cp 16; --pp 2; --dp 2; --ranks-per-node 16; --switch-ports 16");
  add(e, changes, "", "--json");
  return e;
}

// Of the verbs that run layers: how their ranks come to be. Beside a backend of threads most mean nothing.
void add_ranks(Effects& e) {
  const std::string of_processes = "--rank 1; --ranks 4; --rendezvous 127.0.0.1:29500; --ranks-per-node 2";
  const std::string of_nccl = "--min-ctas 2; --max-ctas 8; --implicit-launch-order";
  add(e, parsed, "", "--backend gloo; --device cuda; --threads 2; --timeout 3");
  add(e, parsed, "--backend gloo", of_processes);
  add(e, refused, "", of_processes);
  add(e, parsed, "--backend nccl", of_nccl);
  add(e, refused, "", of_nccl);
  add(e, refused, "--backend gloo", of_nccl);
  add(e, refused, "--backend nccl", "--device cpu");
  add(e, refused, "", "--threads 0; --threads -1; --threads 1.5; --threads two");
}

Effects tune() {
  const std::string grid = "--no-verify --grid ./few.toml", none = " --strategy-layers 0",
                    two = " --schedule tutel,fsmoe";
  const std::string base = grid + none + two + " --json", some = grid + none + " --schedule monta,lina --json";
  Effects e;
  add(e, changes, base, "--cluster testbed-a; --degree-forward 3; --degree-backward 3");
  add(e, changes, some, "--min-chunk-bytes 100000000; --micro-op-bytes 100000");
  add(e, refused, base, "--min-chunk-bytes 1; --micro-op-bytes 1000");
  add(e, changes, base + " --cluster ./half.toml", "--nearest");
  e.emplace("--grid", FlagEffect{changes, base, "--no-verify --grid ./other.toml" + none + two + " --json"});
  add(e, changes, grid + none + " --json", "--schedule fsmoe");
  add(e, changes, grid + none + two, "--json");
  e.emplace("--strategy-layers", FlagEffect{changes, base, grid + two + " --json"});
  add(e, refused, "", "--strategy-layers 3");
  add(e, writes, base, "--trace written; --out written");
  add(e, parsed, "", "--overwrite; --no-verify; --measure 3; --measure-degrees; --iterations 2; --seed 7");
  add(e, refused, base,
      "--measure 3; --measure-degrees; --iterations 2; --seed 7; --timeout 3; --backend gloo; --device cpu; --threads "
      "2");
  const std::string one = "--no-verify --schedule fsmoe --nearest --layers 2 --json";
  add_planned(e, "--no-verify --schedule fsmoe --nearest --no-residual --json",
              "--norm none; --aux-loss 0.01; --z-loss 0.01");
  add(e, parsed, "", "--no-residual");
  add(e, changes, one, "--shape auto; --current tutel:2");
  add(e, refused, one, "--pp 3");
  add(e, changes, "--no-verify --batch 2", "--top 2");
  add(e, refused, grid, "--shape auto; --current tutel; --top 3");
  add(e, refused, one, "--grid ./few.toml; --strategy-layers 2; --shape many; --current tutle; --top 0; --all");
  add(e, refused, "--model gpt2-xl", "--measure 3; --measure-degrees");
  add(e, parsed, "--batch 2", "--all");
  add_ranks(e);
  return e;
}

Effects microbench() {
  const std::string range = "--min-bytes 64K --max-bytes 1M", steps = "--step-factor 4; --step-bytes 64K";
  Effects e;
  add(e, parsed, "",
      "--cluster testbed-a; --repetitions 2; --min-bytes 64K; --max-bytes 1M; --iterations 2; --warmup 3; --check 0; "
      "--dtype float64; --modules; --kernels; --out o.jsonl; --overwrite; --json");
  add(e, parsed, range, steps);
  add(e, refused, "--min-bytes 64K", steps);
  add(e, refused, range + " --step-bytes 64K", "--step-factor 4");
  add(e, refused, "", "--warmup 0; --check 2");
  add(e, refused, "--kernels", "--cluster testbed-a; --min-bytes 64K; --iterations 2; --modules");
  add(e, parsed, "--kernels", "--device cuda; --out o.jsonl; --overwrite");
  add_ranks(e);
  return e;
}

// Of the verbs that run one layer, or several that are alike.
void add_layers_that_run(Effects& e) {
  add(e, parsed, "", kSizes);
  add(e, parsed, "",
      "--capacity-rounding tutel; --heads 32; --gate switch; --order gshard; --dispatcher 2dh; --hook bf16; "
      "--norm none; --no-residual; --aux-loss 0.01; --z-loss 0.01; --dtype float64; --dp 8; --pp 2; "
      "--placement ep-inside; --cluster testbed-a; --schedule fsmoe; --degree-forward 2; --degree-backward 2; "
      "--micro-op-bytes 1000; --min-chunk-bytes 1000; --nearest; --seed 7; --trace t; --tasks; --out o.jsonl; "
      "--overwrite; --json");
}

Effects layerbench() {
  Effects e;
  add_layers_that_run(e);
  add(e, parsed, "", "--layer example; --grid fsmoe-b; --iterations 2; --workload balanced; --dump d; --check-only");
  add(e, parsed, "--grid fsmoe-b", "--grid-layers 2; --only x");
  add(e, refused, "--grid fsmoe-b", "--only x");
  add(e, parsed, "--degree-forward 1 --degree-backward 1", "--no-predict");
  add(e, refused, "", "--no-predict; --slow some:2; --slow expert:0.5");
  add(e, parsed, "", "--slow expert:1.5");
  add(e, refused, "--cluster host", "--slow expert:2:99");
  add(e, refused, "--cluster testbed-b", "--slow expert:2");
  add(e, parsed, "", "--layers 2; --micro-batches 2; --pipeline 1f1b");
  add(e, refused, "--grid fsmoe-b", "--layers 2; --micro-batches 2; --pipeline 1f1b");
  add(e, refused, "", "--grid-layers 2");
  add(e, parsed, "", "--plan plan.json");
  add(e, refused, "--seq 64", "--plan plan.json");
  add(e, refused, "--check-only", "--iterations 2; --trace t; --tasks");
  add(e, refused, "--json", "--tasks");
  add_ranks(e);
  return e;
}

Effects modelbench() {
  Effects e;
  add_layers_that_run(e);
  add(e, parsed, "",
      "--model mixtral-7b; --layers 2; --micro-batches 2; --pipeline 1f1b; --steps 7; --text bytes; --markov-order 3; "
      "--optimizer sgd; --learning-rate 0.1; --warm-up 3; --weight-decay 0.1; --clip-norm 0; --held-out 0");
  add(e, parsed, "--optimizer sgd", "--momentum 0.5");
  add(e, refused, "", "--momentum 0.5; --steps 0; --markov-order 5");
  add(e, refused, "--text bytes", "--markov-order 3");
  add(e, refused, "--json", "--tasks");
  add(e, parsed, "", "--checkpoint kept");
  add(e, parsed, "--checkpoint kept", "--checkpoint-every 4");
  add_ranks(e);
  return e;
}

Effects reproduce() {
  Effects e;
  e.emplace("TABLE", FlagEffect{changes, "monta-fig13", "monta-table8"});
  add(e, changes, "lina-training", "--assume lina-a100");
  add(e, refused, "--audit", "--assume lina-a100");
  add(e, parsed, "", "--audit; --all; --overwrite");
  add(e, parsed, "--all", "--write w.md");
  add(e, refused, "monta-fig13", "--write w.md");
  add(e, writes, "monta-fig13", "--out written");
  add(e, changes, "monta-fig13", "--json");
  return e;
}

const std::string kLaunches = "--launcher nice; --delta 5; --timeout 3; --seed 7";

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

Effects fit() {
  const std::string base = "--records records.jsonl";
  Effects e;
  add(e, changes, base, "--name mine; --json");
  e.emplace("--records", FlagEffect{changes, base, "--records fewer.jsonl"});
  add(e, writes, base, "--out written");
  return e;
}

Effects doctor() {
  Effects e;
  add(e, parsed, "", "--strict");
  add(e, changes, "", "--all; --json");
  return e;
}

Effects compare() {
  const std::string base = "base.jsonl head.jsonl --json", text = "base.jsonl head.jsonl";
  Effects e;
  e.emplace("BASE", FlagEffect{changes, base, "head.jsonl head.jsonl --json"});
  e.emplace("HEAD", FlagEffect{changes, base, "base.jsonl base.jsonl --json"});
  add(e, changes, base, "--filter ranks=8; --by op; --floor floor.jsonl");
  add(e, changes, text, "--markdown; --json");
  add(e, changes, "base.jsonl base.jsonl", "--all");
  add(e, refused, base, "--all; --markdown; --filter ranks; --filter nosuch=1; --by nosuch");
  add(e, parsed, text, "--strict");
  return e;
}

Effects history() {
  Effects e;
  e.emplace("DIR", FlagEffect{changes, "deep --json", "deep/down --json"});
  add(e, changes, "deep --json", "--filter ranks=8; --by op");
  add(e, changes, "deep", "--json");
  add(e, refused, "deep", "--filter ranks; --by nosuch");
  add(e, parsed, "deep", "--plot a.svg");
  return e;
}

Effects export_() {
  Effects e;
  e.emplace("FORMAT", FlagEffect{changes, "otava layers.jsonl", "otava-json layers.jsonl"});
  e.emplace("FILE", FlagEffect{changes, "csv testbed-b", "csv testbed-a"});
  add(e, changes, "csv testbed-b", "--per-element");
  add(e, changes, "google-benchmark base.jsonl", "--samples");
  add(e, changes, "plan layers.jsonl", "--schedule tutel");
  add(e, parsed, "plan layers.jsonl", "--only x");
  add(e, changes, "chakra plan.json", "--cluster testbed-b");
  add(e, refused, "chakra plan.json", "--only x; --schedule tutel");
  add(e, refused, "csv testbed-b", "--cluster testbed-b; --only x; --schedule tutel; --samples");
  add(e, refused, "otava layers.jsonl", "--per-element");
  add(e, writes, "csv testbed-b", "--out written");
  return e;
}

Effects import_() {
  const std::string csv = "csv samples.csv --out o.jsonl --nodes 2", asked = "nccl-tests a --out o.jsonl";
  Effects e;
  e.emplace("FORMAT", FlagEffect{parsed, asked, "kineto a --out o.jsonl"});
  e.emplace("FILE", FlagEffect{parsed, asked, "nccl-tests b --out o.jsonl"});
  add(e, parsed, asked,
      "--cluster mine; --op alltoall; --network intra; --nodes 2; --ranks 8; --ranks-per-node 4; --in-place; "
      "--overwrite");
  add(e, parsed, "kineto a --out o.jsonl", "--map m.csv");
  add(e, refused, csv, "--op alltoall; --network intra; --ranks 8; --in-place; --map m.csv");
  add(e, refused, "nccl-tests a", "--map m.csv");
  add(e, writes, "csv-profile profile.csv", "--out written");
  add(e, refused, "csv-profile profile.csv --out written", "--cluster mine; --nodes 2");
  return e;
}

Effects report() {
  Effects e;
  e.emplace("RECORDS", FlagEffect{changes, "records.jsonl", "fewer.jsonl"});
  add(e, parsed, "a", "--cluster testbed-a; --timelines 2");
  add(e, writes, "records.jsonl", "--out written");
  add(e, refused, "records.jsonl", "--timelines -1");
  return e;
}

// What every verb shows on stderr.
void add_log(Effects& e, const std::string& base) {
  add(e, parsed, base, "--quiet; --verbose");
  add(e, refused, base + (base.empty() ? "" : " ") + "--quiet", "--verbose");
}

Effects one_of(Effect effect, const std::string& flags) {
  Effects e;
  add(e, effect, "", flags);
  return e;
}

}  // namespace

std::map<std::string, std::multimap<std::string, FlagEffect>> flag_effects() {
  std::map<std::string, Effects> all{{"list", one_of(changes, "--json")},
                                     {"doctor", doctor()},
                                     {"simulate", simulate()},
                                     {"memory", memory()},
                                     {"placement", placement()},
                                     {"tune", tune()},
                                     {"microbench", microbench()},
                                     {"layerbench", layerbench()},
                                     {"modelbench", modelbench()},
                                     {"reproduce", reproduce()},
                                     {"fit", fit()},
                                     {"compare", compare()},
                                     {"history", history()},
                                     {"export", export_()},
                                     {"import", import_()},
                                     {"report", report()},
                                     {"plannerbench", one_of(parsed, "--json")},
                                     {"ab", ab()},
                                     {"self-test", self_test()},
                                     {"launch",
                                      {{"--ranks", {parsed, "-- tune", "--ranks 4 -- tune"}},
                                       {"--quiet", {parsed, "-- tune", "--quiet -- tune"}},
                                       {"--verbose", {parsed, "-- tune", "--verbose -- tune"}}}}};
  const std::map<std::string, std::string> needed{{"compare", "a b"},
                                                  {"history", "a"},
                                                  {"export", "csv a"},
                                                  {"import", "csv a"},
                                                  {"report", "a"}};  // beside any flag
  for (auto& [verb, effects] : all)
    if (verb != "launch") add_log(effects, needed.contains(verb) ? needed.at(verb) : "");
  return all;
}

}  // namespace moe
