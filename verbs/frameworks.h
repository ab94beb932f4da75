#pragma once
// What other frameworks run: which of the schedules, in which groups and orders of micro-batches. `tune` and `export`
// both read this.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/schedule/model_plan.h"

namespace moe::verbs {

/// A framework's name for a flag of tune that says groups, micro-batches or what a rank keeps.
struct SettingName {
  std::string_view flag, theirs;
};

/// A framework by the schedules that it runs: `exact` as they are, `close` but for something that no record
/// can price, which `but` names. Neither: it runs all.
struct Framework {
  std::string_view name;
  std::string_view key;     // of tune --framework
  bool is_exported = true;  // its settings are export's format of that key
  std::span<const std::string_view> exact = {}, close = {};
  std::string_view but = {};
  /// Returns a sentence for each thing of a model's shape that the framework refuses. Layers: 0 if not known.
  std::vector<std::string> (*refusals)(const ModelShape& model) = nullptr;
  std::span<const SettingName> settings = {};

  bool runs_all() const { return exact.empty() && close.empty(); }
  /// Returns the schedules to plan for it, in the order of all: those that it runs exactly, if there are any.
  std::vector<const Schedule*> schedules() const;
};

/// Returns Tutel, FSMoE's published layer, Megatron-Core, DeepSpeed, torchtitan and moetune itself, as their own
/// documentation has them.
std::span<const Framework> frameworks();
/// Returns the framework of that key; there must be one.
const Framework& framework_of(std::string_view key);

/// Returns what the framework refuses of the shape; empty: it runs it.
std::vector<std::string> refusals_of(const Framework& framework, const ModelShape& model);

/// Returns the framework's setting for a flag of tune: "--tensor-model-parallel-size 2"; empty: it has none.
std::string setting_of(const Framework& framework, std::string_view flag, std::string_view value);

/// Schedules that every comparison shows, whatever they take: Tutel's, and the one of DeepSpeed-MoE.
inline constexpr std::array<std::string_view, 2> kBaselines{"tutel", "ds-moe"};
inline bool is_baseline(std::string_view schedule) {
  return std::ranges::find(kBaselines, schedule) != kBaselines.end();
}

}  // namespace moe::verbs
