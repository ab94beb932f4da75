#include "verbs/frameworks.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace moe::verbs {
namespace {

constexpr std::array<std::string_view, 2> kOfTutel{"tutel", "ds-moe"};
constexpr std::array<std::string_view, 1> kUnpipelined{"ds-moe"}, kOfFsmoe{"fsmoe-no-partition"},
    kAlmostOfFsmoe{"fsmoe"};

constexpr std::array<Framework, 4> kFrameworks{
    {{"Tutel", "tutel", kOfTutel},
     {"FSMoE's published layer", "fsmoe", kOfFsmoe, kAlmostOfFsmoe,
      "the gradients that it sends inside the MoE part: the published layer leaves gradients to Megatron"},
     {"Megatron-Core", "megatron", kUnpipelined},
     {"DeepSpeed", "deepspeed", kUnpipelined}}};

}  // namespace

std::span<const Framework> frameworks() { return kFrameworks; }

const Framework& framework_of(std::string_view format) {
  return *std::ranges::find(kFrameworks, format, &Framework::format);
}

std::vector<std::string> megatron_refusals(const LayerCase& shape, int64_t layers) {
  const LayerShape& l = shape.layer;
  const ParallelShape& p = shape.parallel;
  std::vector<std::string> refusals;
  const auto add = [&](const std::string& what) { refusals.push_back("Megatron-Core refuses " + what); };
  const auto needs_multiple = [&](std::string_view what, int64_t found, std::string_view group, int64_t size) {
    if (found % size != 0) add(fmt::format("{} {} over {} {}", found, what, group, size));
  };
  needs_multiple("attention heads", l.heads, "TP", p.mp);
  if (l.kv_heads < l.heads && l.kv_heads % p.mp != 0)
    add(fmt::format("{} key-value heads over TP {}{}", l.kv_heads, p.mp,
                    p.mp % l.kv_heads == 0 ? ", before release 0.16" : ""));
  needs_multiple("tokens a sample with --sequence-parallel", l.seq, "TP", p.mp);
  needs_multiple("layers", layers, "PP", p.pp);
  if (l.node_limit > 0) needs_multiple("experts", l.experts, "as many router groups as nodes,", expert_nodes(p));
  if (l.bias && p.esp > 1) add(fmt::format("experts with biases over ETP {}", p.esp));
  return refusals;
}

}  // namespace moe::verbs
