#pragma once
// The layout of a training, read from a framework's own files: command lines, YAML and JSON.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands/shared/frameworks.h"

namespace moe::commands {

/// Megatron-Core's older setting for virtual stages: the number of layers of each.
inline constexpr std::string_view kLayersPerChunk = "--num-layers-per-virtual-pipeline-stage";

struct LayoutFile {
  /// A flag of tune with the file's value, and its place: "train.yaml:3: model.tensor_model_parallel_size".
  struct FlagSetting {
    std::string_view flag;
    std::string value, where;
  };

  std::string path;
  const Framework* framework = nullptr;
  const SettingsFormat* format = nullptr;
  std::vector<FlagSetting> settings = {};
  std::vector<SettingDefault> defaults = {};  // values for flags that the file does not set
  /// Settings that are ignored in the time of the training: "overlap_grad_reduce true".
  std::vector<std::string> unplanned = {};
  /// Settings that concern neither groups nor states.
  std::vector<std::string> ignored = {};
  /// Sizes of the training's model by their flags; tune takes the model from other flags.
  std::vector<FlagSetting> sizes = {};
  std::optional<int64_t> nodes = {}, ranks_per_node = {};  // nodes and ranks per node of the training; none: unknown

  /// Returns the file's value for the flag; null if there is none.
  const FlagSetting* find(std::string_view flag) const;
};

/// Reads a file of any framework that has formats: YAML by its extension, JSON by its first character, otherwise a
/// command line, a script's array or lines of both, which YAML may have in MODEL_ARGS. If an argument is repeated, the
/// last one counts. Other YAML and JSON has the format with the most names in it. Keys with null or "auto" are skipped,
/// and settings that do not affect times are ignored. Throws BadInput "PATH:LINE: KEY: ..." if the file is no layout,
/// for features that no plan has, and for sizes of groups under unknown names.
LayoutFile read_layout(const std::string& path);

}  // namespace moe::commands
