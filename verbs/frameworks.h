#pragma once
// Which of the schedules other frameworks run, and by which name `export` knows them.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/plan/shape.h"

namespace moe::verbs {

/// A framework by the schedules that it runs: `exact` as they are, `close` but for something that no record
/// can price, which `but` names.
struct Framework {
  std::string_view name, format;
  std::span<const std::string_view> exact, close = {};
  std::string_view but = {};
};

/// Returns Tutel, Megatron-Core, DeepSpeed and FSMoE's published layer, as their own documentation has them.
std::span<const Framework> frameworks();
/// Returns the framework of that format; there must be one.
const Framework& framework_of(std::string_view format);

/// Returns a sentence for each thing that Megatron-Core's own checks refuse of a shape and of a model of so many layers
/// (0: not known), with the releases that do if not all of them.
std::vector<std::string> megatron_refusals(const LayerCase& shape, int64_t layers);

/// The schedules that every comparison shows, whatever they take: Tutel's, and the one of DeepSpeed-MoE.
inline constexpr std::array<std::string_view, 2> kBaselines{"tutel", "ds-moe"};
inline bool is_baseline(std::string_view schedule) {
  return std::ranges::find(kBaselines, schedule) != kBaselines.end();
}

}  // namespace moe::verbs
