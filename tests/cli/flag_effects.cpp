#include "tests/cli/flag_effects.h"

namespace moe {
namespace {

using Effects = std::multimap<std::string, FlagEffect>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A flag beside what stands there anyway.
void add(Effects& effects, Effect effect, const Words& base, const Words& flag) {
  effects.emplace(flag.front(), FlagEffect{effect, base, base + flag});
}

void add_all(Effects& effects, Effect effect, const Words& base, const std::vector<Words>& flags) {
  for (const Words& flag : flags) add(effects, effect, base, flag);
}

// Sizes and groups, which change bytes and times. Groups of other sizes than the profile's borrow their rows.
const std::vector<Words> kSizes{{"--batch", "8"},
                                {"--seq", "256"},
                                {"--model-dim", "2048"},
                                {"--hidden", "8192"},
                                {"--kv-heads", "4"},
                                {"--experts", "16"},
                                {"--top-k", "1"},
                                {"--capacity-factor", "2"},
                                {"--capacity-rounding", "deepspeed"},
                                {"--ffn", "mixtral"},
                                {"--mp", "2"},
                                {"--ep", "4"},
                                {"--esp", "2"}};

Effects simulate() {
  const Words base{"--schedule", "fsmoe", "--nearest", "--json"}, some{"--schedule", "fsmoe,monta,lina", "--json"};
  Effects e;
  add_all(e, Effect::changes, base, kSizes);
  // 43 tokens an expert: neither a multiple of 4 nor a whole number.
  e.find("--capacity-rounding")->second = {
      Effect::changes, base + Words{"--seq", "8", "--batch", "1"},
      base + Words{"--seq", "8", "--batch", "1", "--capacity-rounding", "deepspeed"}};
  add(e, Effect::changes, base + Words{"--model-dim", "1600"}, {"--heads", "25"});
  add_all(e, Effect::changes, base,
          {{"--pp", "2"},
           {"--placement", "ep-inside"},
           {"--hook", "bf16"},
           {"--layer", "./layer.toml"},
           {"--cluster", "testbed-a"},
           {"--degree-forward", "3"},
           {"--degree-backward", "3"},
           {"--model", "gpt-2"},
           {"--layers", "2"},
           {"--micro-batches", "2"},
           {"--jitter", "0.1"},
           {"--straggler", "3:1.5"}});
  add_all(e, Effect::describes, base,
          {{"--norm", "none"}, {"--no-residual"}, {"--aux-loss", "0.01"}, {"--z-loss", "0.01"}});
  const Words modules = base + Words{"--cluster", "./modules.toml"};
  add_all(e, Effect::changes, modules, {{"--gate", "switch"}, {"--order", "gshard"}, {"--dtype", "bfloat16"}});
  add(e, Effect::changes, modules, {"--dispatcher", "2dh"});
  add_all(e, Effect::refused, base, {{"--dp", "3"}});
  add(e, Effect::changes, {"--json"}, {"--schedule", "fsmoe"});
  add_all(e, Effect::changes, some, {{"--min-chunk-bytes", "100000000"}, {"--micro-op-bytes", "100000"}});
  add_all(e, Effect::refused, {"--schedule", "fsmoe"}, {{"--min-chunk-bytes", "1"}, {"--micro-op-bytes", "1000"}});
  add(e, Effect::changes, {"--ep", "4", "--schedule", "fsmoe"}, {"--nearest"});
  const Words model = base + Words{"--layers", "3", "--micro-batches", "2"};
  add_all(e, Effect::changes, model,
          {{"--pipeline", "1f1b"}, {"--partition", "none"}, {"--jitter", "0.1"}, {"--straggler", "3:1.5"}});
  add_all(e, Effect::refused, model,
          {{"--pipeline", "zb"},
           {"--partition", "some"},
           {"--straggler", "9999:5"},
           {"--zipf", "1"},
           {"--out", "written"}});
  add_all(e, Effect::refused, base,
          {{"--pipeline", "1f1b"},
           {"--pipeline", "foo"},
           {"--partition", "exact"},
           {"--partition", "foo"},
           {"--straggler", "9999:5"},
           {"--zipf", "1"},
           {"--samples", "3"},
           {"--seed", "3"},
           {"--sweep-degrees"}});
  add(e, Effect::refused, base + Words{"--layers", "3"}, {"--pipeline", "1f1b"});
  add(e, Effect::changes, base + Words{"--capacity-factor", "none"}, {"--zipf", "1"});
  add(e, Effect::changes, model + Words{"--capacity-factor", "none"}, {"--zipf", "1"});
  add(e, Effect::refused, base + Words{"--capacity-factor", "none", "--gate", "softmoe"}, {"--zipf", "1"});
  add_all(e, Effect::changes, base + Words{"--jitter", "0.1"}, {{"--samples", "3"}, {"--seed", "3"}});
  add(e, Effect::refused, base + Words{"--straggler", "3:2"}, {"--samples", "3"});
  add_all(e, Effect::writes, base, {{"--trace", "written"}, {"--out", "written"}});
  add(e, Effect::writes, model, {"--trace", "written"});
  add(e, Effect::writes, {"--schedule", "fsmoe"}, {"--sweep-degrees", "--out", "written"});
  add(e, Effect::changes, {"--schedule", "fsmoe"}, {"--json"});
  return e;
}

Effects memory() {
  const Words base{"--json"}, model{"--model", "mixtral-7b", "--json"};
  Effects e;
  add_all(e, Effect::changes, base, kSizes);
  e.erase("--capacity-rounding");
  add(e, Effect::changes, base + Words{"--seq", "8", "--batch", "1"}, {"--capacity-rounding", "deepspeed"});
  add_all(e, Effect::changes, base,
          {{"--heads", "32"},
           {"--cluster", "testbed-a"},
           {"--layer", "./layer.toml"},
           {"--model", "gpt-2"},
           {"--layers", "2"},
           {"--dtype", "bfloat16"},
           {"--norm", "none"},
           {"--gate", "xmoe"},
           {"--memory-gib", "80"},
           {"--zero", "1"},
           {"--recompute", "full"},
           {"--parm"}});
  add_all(e, Effect::describes, base,
          {{"--order", "gshard"},
           {"--dispatcher", "2dh"},
           {"--hook", "bf16"},
           {"--no-residual"},
           {"--aux-loss", "0.01"},
           {"--z-loss", "0.01"},
           {"--placement", "ep-inside"}});
  add_all(e, Effect::changes, model + Words{"--layers", "4", "--pp", "2"}, {{"--micro-batches", "4"}});
  add(e, Effect::changes, model + Words{"--layers", "4", "--pp", "2", "--micro-batches", "8"}, {"--pipeline", "1f1b"});
  add(e, Effect::changes, base + Words{"--layers", "4"}, {"--pp", "2"});
  add_all(e, Effect::refused, base, {{"--dp", "3"}, {"--pipeline", "1f1b"}, {"--pipeline", "foo"}});
  add_all(e, Effect::refused, {"--parm"}, {{"--batch", "2"}, {"--cluster", "testbed-a"}, {"--zero", "1"}});
  add_all(e, Effect::changes, {"--parm", "--json"}, {{"--top-k", "1"}, {"--experts", "8"}});
  add(e, Effect::changes, {}, {"--json"});
  return e;
}

Effects placement() {
  Effects e;
  add_all(e, Effect::changes, {"--json"},
          {{"--tp", "4"},
           {"--ep", "4"},
           {"--cp", "16"},
           {"--pp", "2"},
           {"--dp", "2"},
           {"--ranks-per-node", "16"},
           {"--switch-ports", "16"}});
  add(e, Effect::changes, {}, {"--json"});
  return e;
}

// Of the verbs that run layers: how their ranks come to be. Beside a backend of threads most mean nothing.
void add_ranks(Effects& e, const Words& base) {
  const Words gloo = base + Words{"--backend", "gloo"}, nccl = base + Words{"--backend", "nccl"};
  add_all(e, Effect::parsed, base, {{"--backend", "gloo"}, {"--device", "cuda"}, {"--timeout", "3"}});
  add_all(e, Effect::parsed, gloo,
          {{"--rank", "1"}, {"--ranks", "4"}, {"--rendezvous", "127.0.0.1:29500"}, {"--ranks-per-node", "2"}});
  add_all(e, Effect::refused, base,
          {{"--rank", "1"}, {"--ranks", "4"}, {"--rendezvous", "127.0.0.1:29500"}, {"--ranks-per-node", "2"}});
  const std::vector<Words> of_nccl{{"--min-ctas", "2"}, {"--max-ctas", "8"}, {"--implicit-launch-order"}};
  add_all(e, Effect::parsed, nccl, of_nccl);
  add_all(e, Effect::refused, base, of_nccl);
  add_all(e, Effect::refused, gloo, of_nccl);
  add(e, Effect::refused, nccl, {"--device", "cpu"});
}

Effects tune() {
  const Words grid{"--no-verify", "--grid", "./few.toml"};
  const Words base = grid + Words{"--schedule", "tutel,fsmoe", "--strategy-layers", "0", "--json"};
  const Words some = grid + Words{"--schedule", "monta,lina", "--strategy-layers", "0", "--json"};
  Effects e;
  add_all(e, Effect::changes, base,
          {{"--cluster", "testbed-a"}, {"--degree-forward", "3"}, {"--degree-backward", "3"}});
  add_all(e, Effect::changes, some, {{"--min-chunk-bytes", "100000000"}, {"--micro-op-bytes", "100000"}});
  add_all(e, Effect::refused, base, {{"--min-chunk-bytes", "1"}, {"--micro-op-bytes", "1000"}});
  add(e, Effect::changes, base + Words{"--cluster", "./half.toml"}, {"--nearest"});
  e.emplace("--grid", FlagEffect{Effect::changes,
                                 base,
                                 {"--no-verify", "--grid", "./other.toml", "--schedule", "tutel,fsmoe",
                                  "--strategy-layers", "0", "--json"}});
  add(e, Effect::changes, grid + Words{"--json", "--strategy-layers", "0"}, {"--schedule", "fsmoe"});
  e.emplace("--strategy-layers",
            FlagEffect{Effect::changes, base, grid + Words{"--schedule", "tutel,fsmoe", "--json"}});
  add(e, Effect::refused, {}, {"--strategy-layers", "3"});
  add_all(e, Effect::writes, base, {{"--trace", "written"}, {"--out", "written"}});
  e.emplace("--json", FlagEffect{Effect::changes, grid + Words{"--strategy-layers", "0", "--schedule", "fsmoe"},
                                 grid + Words{"--strategy-layers", "0", "--schedule", "fsmoe", "--json"}});
  add_all(e, Effect::parsed, {},
          {{"--no-verify"}, {"--measure", "3"}, {"--measure-degrees"}, {"--iterations", "2"}, {"--seed", "7"}});
  add_all(e, Effect::refused, base,
          {{"--measure", "3"},
           {"--measure-degrees"},
           {"--iterations", "2"},
           {"--seed", "7"},
           {"--timeout", "3"},
           {"--backend", "gloo"},
           {"--device", "cpu"}});
  add_ranks(e, {});
  return e;
}

Effects microbench() {
  Effects e;
  add_all(e, Effect::parsed, {},
          {{"--cluster", "testbed-a"},
           {"--repetitions", "2"},
           {"--min-bytes", "64K"},
           {"--max-bytes", "1M"},
           {"--iterations", "2"},
           {"--warmup", "3"},
           {"--check", "0"},
           {"--dtype", "float64"},
           {"--modules"},
           {"--kernels"},
           {"--out", "o.jsonl"},
           {"--json"}});
  const Words range{"--min-bytes", "64K", "--max-bytes", "1M"};
  add_all(e, Effect::parsed, range, {{"--step-factor", "4"}, {"--step-bytes", "64K"}});
  add_all(e, Effect::refused, {"--min-bytes", "64K"}, {{"--step-factor", "4"}, {"--step-bytes", "64K"}});
  add(e, Effect::refused, range + Words{"--step-bytes", "64K"}, {"--step-factor", "4"});
  add_all(e, Effect::refused, {}, {{"--warmup", "0"}, {"--check", "2"}});
  add_all(e, Effect::refused, {"--kernels"},
          {{"--cluster", "testbed-a"}, {"--min-bytes", "64K"}, {"--iterations", "2"}, {"--modules"}, {"--out", "o"}});
  add_ranks(e, {});
  return e;
}

Effects layerbench() {
  Effects e;
  add_all(e, Effect::parsed, {}, kSizes);
  add_all(e, Effect::parsed, {},
          {{"--heads", "32"},
           {"--gate", "switch"},
           {"--order", "gshard"},
           {"--dispatcher", "2dh"},
           {"--hook", "bf16"},
           {"--norm", "none"},
           {"--no-residual"},
           {"--aux-loss", "0.01"},
           {"--z-loss", "0.01"},
           {"--dtype", "float64"},
           {"--dp", "8"},
           {"--pp", "2"},
           {"--placement", "ep-inside"},
           {"--layer", "example"},
           {"--cluster", "testbed-a"},
           {"--grid", "fsmoe-b"},
           {"--schedule", "fsmoe"},
           {"--degree-forward", "2"},
           {"--degree-backward", "2"},
           {"--micro-op-bytes", "1000"},
           {"--min-chunk-bytes", "1000"},
           {"--nearest"},
           {"--iterations", "2"},
           {"--seed", "7"},
           {"--workload", "balanced"},
           {"--trace", "t"},
           {"--tasks"},
           {"--dump", "d"},
           {"--check-only"},
           {"--out", "o.jsonl"},
           {"--json"}});
  add(e, Effect::parsed, {"--grid", "fsmoe-b"}, {"--grid-layers", "2"});
  add(e, Effect::refused, {}, {"--grid-layers", "2"});
  add_all(e, Effect::refused, {"--check-only"}, {{"--iterations", "2"}, {"--trace", "t"}, {"--tasks"}});
  add(e, Effect::refused, {"--json"}, {"--tasks"});
  add_ranks(e, {});
  return e;
}

Effects reproduce() {
  Effects e;
  e.emplace("TABLE", FlagEffect{Effect::changes, {"monta-fig13"}, {"monta-table8"}});
  add(e, Effect::changes, {"lina-training"}, {"--assume", "lina-a100"});
  add(e, Effect::refused, {"--audit"}, {"--assume", "lina-a100"});
  add_all(e, Effect::parsed, {}, {{"--audit"}, {"--all"}});
  add(e, Effect::parsed, {"--all"}, {"--write", "w.md"});
  add(e, Effect::refused, {"monta-fig13"}, {"--write", "w.md"});
  add(e, Effect::writes, {"monta-fig13"}, {"--out", "written"});
  add(e, Effect::changes, {"monta-fig13"}, {"--json"});
  return e;
}

Effects fit() {
  Effects e;
  add_all(e, Effect::parsed, {}, {{"--name", "mine"}, {"--out", "mine.toml"}, {"--json"}, {"--records", "r.jsonl"}});
  return e;
}

}  // namespace

std::map<std::string, std::multimap<std::string, FlagEffect>> flag_effects() {
  Effects list, plannerbench, launch;
  add(list, Effect::changes, {}, {"--json"});
  add(plannerbench, Effect::parsed, {}, {"--json"});
  launch.emplace("--ranks", FlagEffect{Effect::parsed, {"--", "tune"}, {"--ranks", "4", "--", "tune"}});
  return {{"list", list},
          {"simulate", simulate()},
          {"memory", memory()},
          {"placement", placement()},
          {"tune", tune()},
          {"microbench", microbench()},
          {"layerbench", layerbench()},
          {"reproduce", reproduce()},
          {"fit", fit()},
          {"plannerbench", plannerbench},
          {"launch", launch}};
}

}  // namespace moe
