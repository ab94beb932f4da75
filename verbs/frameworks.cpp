#include "verbs/frameworks.h"

#include <algorithm>
#include <array>

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

}  // namespace moe::verbs
