#include "tests/commands/cli/flag_effects.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <sstream>
#include <vector>

namespace moe {

void add(Effects& effects, Effect effect, const std::string& base, const std::string& flags) {
  std::istringstream list(flags);
  for (std::string flag; std::getline(list >> std::ws, flag, ';');) {
    std::string with = base;
    with += (base.empty() ? "" : " ") + flag;
    effects.emplace(flag.substr(0, flag.find(' ')), FlagEffect{effect, base, with});
  }
}

void add_latent_widths(Effects& effects, const std::string& base) {
  std::vector<std::string> flags{"--kv-lora-rank 64", "--q-lora-rank 96", "--qk-nope-head-dim 32",
                                 "--qk-rope-head-dim 16", "--v-head-dim 24"};
  for (size_t i = 0; i < flags.size(); ++i) {
    add(effects, Effect::refused, base, flags.front());
    add(effects, Effect::changes, base, fmt::format("{}", fmt::join(flags, " ")));
    std::ranges::rotate(flags, flags.begin() + 1);
  }
}

const std::string kSizes =
    "--batch 8; --seq 256; --model-dim 2048; --hidden 8192; --shared-hidden 512; --kv-heads 4; --head-dim 96; "
    "--experts 16; --top-k 1; --capacity-factor 2; --ffn mixtral; --mp 2; --cp 2; --ep 4; --esp 2";

void add_ranks(Effects& e) {
  using enum Effect;
  const std::string process_target = "--rank 1; --ranks 4; --rendezvous 127.0.0.1:29500; --ranks-per-node 2";
  const std::string of_nccl = "--min-ctas 2; --max-ctas 8; --implicit-launch-order";
  add(e, parsed, "", "--backend gloo; --device cuda; --threads 2; --timeout 3");
  add(e, parsed, "--backend gloo", process_target);
  add(e, refused, "", process_target);
  add(e, parsed, "--backend nccl", of_nccl);
  add(e, refused, "", of_nccl);
  add(e, refused, "--backend gloo", of_nccl);
  add(e, refused, "--backend nccl", "--device cpu");
  add(e, refused, "", "--threads 0; --threads -1; --threads 1.5; --threads two");
}

namespace {

using enum Effect;

// What every verb shows on stderr.
void add_log(Effects& e, const std::string& base) {
  add(e, parsed, base, "--quiet; --verbose; --wide; --max-input 1G");
  add(e, refused, base + (base.empty() ? "" : " ") + "--quiet", "--verbose");
}

Effects one_of(Effect effect, const std::string& flags) {
  Effects e;
  add(e, effect, "", flags);
  return e;
}

}  // namespace

EffectsOfVerbs flag_effects() {
  EffectsOfVerbs all{{"list", one_of(changes, "--json")},
                     {"plannerbench", one_of(parsed, "--json")},
                     {"launch",
                      {{"--ranks", {parsed, "-- tune", "--ranks 4 -- tune"}},
                       {"--quiet", {parsed, "-- tune", "--quiet -- tune"}},
                       {"--verbose", {parsed, "-- tune", "--verbose -- tune"}},
                       {"--wide", {parsed, "-- tune", "--wide -- tune"}},
                       {"--max-input", {parsed, "-- tune", "--max-input 1G -- tune"}}}}};
  all.merge(effects_of_planning());
  all.merge(effects_of_running());
  all.merge(effects_of_records());
  const std::map<std::string, std::string> needed{{"compare", "a b"},  {"model", "a"},
                                                  {"history", "a"},    {"export", "csv a"},
                                                  {"import", "csv a"}, {"report", "a"}};  // beside any flag
  for (auto& [verb, effects] : all)
    if (verb != "launch") add_log(effects, needed.contains(verb) ? needed.at(verb) : "");
  return all;
}

}  // namespace moe
