#pragma once
// What other frameworks run: which of the schedules, in which groups and orders of micro-batches. `tune` and `export`
// both read this.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "moe/schedule/model_plan.h"

namespace moe::commands {

/// How a setting has the value of a flag: as it is; true for --zero 1; by the name of an optimizer that shards its
/// states; by what is recomputed, where null is none, or none is.
enum class SettingKind : uint8_t { plain, shards, optimizer, recompute, recompute_mode };

/// A framework's name for a flag of tune that says groups, micro-batches or what a rank keeps: of a command line an
/// argument, of a file the keys from its root, joined by dots. If a flag has several names, export writes the first.
struct SettingName {
  std::string_view flag, theirs;
  SettingKind kind = SettingKind::plain;
};

/// A setting for something that no plan has.
struct UnplannedSetting {
  std::string_view key;       // the end of its name, from a dot on; an argument has - instead of _
  std::string_view planned;   // its value in all plans, beside null
  std::string_view why = {};  // a training that has another one cannot be planned; empty: it is timed as if it had not
  std::string_view under = {};  // the only value of --recompute with which it counts; empty: any
};

/// A flag that holds where a file does not say it; MP: the same as --mp.
struct SettingDefault {
  std::string_view flag, value;
};

/// A kind of file, or command line, that says a training's layout.
struct SettingsFormat {
  std::string_view name;      // "Megatron-Bridge"
  bool is_arguments = false;  // else YAML or JSON
  std::span<const SettingName> names;
  std::span<const SettingDefault> defaults;
  std::span<const UnplannedSetting> unplanned;
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
  std::span<const SettingsFormat> formats = {};  // the first one is exported
  /// By whose rules its ranks keep states and activations; empty: not known.
  std::optional<Trainer> trainer = {};

  bool runs_all() const { return exact.empty() && close.empty(); }
  bool lists(std::string_view schedule) const {
    return std::ranges::find(exact, schedule) != exact.end() || std::ranges::find(close, schedule) != close.end();
  }
  /// Returns the schedules to plan for it, in the order of all: those that it runs exactly, if there are any.
  std::vector<const Schedule*> schedules() const;
};

/// Returns Tutel, FSMoE's published layer, Megatron-Core without and with its overlap of micro-batches, DeepSpeed,
/// torchtitan and moetune itself, as their own documentation has them.
std::span<const Framework> frameworks();
/// Returns the framework of that key; there must be one.
const Framework& framework_of(std::string_view key);

/// Returns what the framework refuses of the shape; empty: it runs it.
std::vector<std::string> refusals_of(const Framework& framework, const ModelShape& model);

/// Returns the setting for a flag of tune: "--tensor-model-parallel-size 2", in files
/// "model.tensor_model_parallel_size=2"; empty: there is none.
std::string setting_of(const SettingsFormat& format, std::string_view flag, std::string_view value);
/// Returns the same as names with their values; whole layers that are recomputed take three of them.
std::vector<std::pair<std::string, std::string>> settings_of(const SettingsFormat& format, std::string_view flag,
                                                             std::string_view value);

/// Schedules that every comparison shows, whatever they take: Tutel's, and the one of DeepSpeed-MoE.
inline constexpr std::array<std::string_view, 2> kBaselines{"tutel", "ds-moe"};
inline bool is_baseline(std::string_view schedule) {
  return std::ranges::find(kBaselines, schedule) != kBaselines.end();
}

}  // namespace moe::commands
