#pragma once
// The schedules, groups and orders of micro-batches that other frameworks can run, for `tune` and `export`.
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

/// How a setting encodes the value of a flag: unchanged; as true for --zero 1; as the name of an optimizer that shards
/// its states; as the recomputed part, with null for none, or with "none"; as a number, with null for 0; as the
/// name that Megatron-Core has for an exchange of keys and values.
enum class SettingKind : uint8_t { plain, shards, optimizer, recompute, recompute_mode, own_layers, exchange };

/// Returns Megatron-Core's name for an exchange of keys and values: "p2p" for a ring.
std::string_view comm_type_of(CpExchange exchange);

/// A framework's name for a flag of tune about groups, micro-batches or what a rank keeps: an argument of a command
/// line, or the keys in a file from its root, joined by dots. If a flag has several names, export writes the first.
struct SettingName {
  std::string_view flag, theirs;
  SettingKind kind = SettingKind::plain;
};

/// A setting for a feature that no plan has.
struct UnplannedSetting {
  std::string_view key;         // last part of its name, after any dot; in arguments with - instead of _
  std::string_view planned;     // its value in all plans, besides null
  std::string_view why = {};    // why a training with another value cannot be planned; empty: the value is ignored
  std::string_view under = {};  // value of --recompute under which the setting matters; empty: any
};

/// The value of a flag that a file does not set. The value "MP" means the value of --mp.
struct SettingDefault {
  std::string_view flag, value;
};

/// A kind of file, or command line, that describes a training's layout.
struct SettingsFormat {
  std::string_view name;      // "Megatron-Bridge"
  bool is_arguments = false;  // true: arguments; false: YAML or JSON
  std::span<const SettingName> names;
  std::span<const SettingDefault> defaults;
  std::span<const UnplannedSetting> unplanned;
};

/// A framework, and the schedules that it runs: those in `exact` as they are, those in `close` with one difference that
/// has no price; `but` describes it. If both are empty, it runs all schedules.
struct Framework {
  std::string_view name;
  std::string_view key;     // name for --framework
  bool is_exported = true;  // export has a format with this key for its settings
  std::span<const std::string_view> exact = {}, close = {};
  std::string_view but = {};
  /// Returns a sentence for each property of a model's shape that the framework refuses. 0 layers: unknown.
  std::vector<std::string> (*refusals)(const ModelShape& model) = nullptr;
  std::span<const SettingsFormat> formats = {};  // export writes the first one
  /// The trainer whose rules determine which states and activations its ranks keep; none: unknown.
  std::optional<Trainer> trainer = {};

  bool runs_all_schedules() const { return exact.empty() && close.empty(); }
  bool lists(std::string_view schedule) const {
    return std::ranges::find(exact, schedule) != exact.end() || std::ranges::find(close, schedule) != close.end();
  }
  /// Returns the schedules to plan for it, in the order of all schedules: the exact ones if there are any, else the
  /// close ones.
  std::vector<const Schedule*> schedules() const;
};

/// Returns Tutel, FSMoE's published layer, Megatron-Core without and with its overlap of micro-batches, DeepSpeed,
/// torchtitan and moetune itself, according to their own documentation.
std::span<const Framework> frameworks();
/// Returns the framework of that key, which must exist.
const Framework& framework_of(std::string_view key);

/// Returns the trainer whose rules count the memory of a framework's ranks; moetune's if they are unknown, or for an
/// empty key.
Trainer trainer_of(std::string_view key);

/// Returns the reasons why the framework refuses the shape; empty if it runs it.
std::vector<std::string> refusals_of(const Framework& framework, const ModelShape& model);

/// Returns the setting for a flag of tune: "--tensor-model-parallel-size 2", in files
/// "model.tensor_model_parallel_size=2"; empty if there is none.
std::string setting_of(const SettingsFormat& format, std::string_view flag, std::string_view value);
/// Returns the same as names with their values; recomputation of whole layers needs three settings.
std::vector<std::pair<std::string, std::string>> settings_of(const SettingsFormat& format, std::string_view flag,
                                                             std::string_view value);

/// Schedules that every comparison shows, whatever their time: Tutel's, and the one of DeepSpeed-MoE.
inline constexpr std::array<std::string_view, 2> kBaselines{"tutel", "ds-moe"};
inline bool is_baseline(std::string_view schedule) {
  return std::ranges::find(kBaselines, schedule) != kBaselines.end();
}

}  // namespace moe::commands
