#pragma once
// The layout of a training as a framework's own files say it: command lines, YAML and JSON.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands/shared/frameworks.h"

namespace moe::commands {

/// Megatron-Core's other way to say virtual stages: by the layers of each.
inline constexpr std::string_view kLayersAChunk = "--num-layers-per-virtual-pipeline-stage";

struct LayoutFile {
  /// A flag of tune with what the file says of it, and where: "train.yaml:3: model.tensor_model_parallel_size".
  struct Said {
    std::string_view flag;
    std::string value, where;
  };

  std::string path;
  const Framework* framework = nullptr;
  const SettingsFormat* format = nullptr;
  std::vector<Said> said = {};
  std::vector<SettingDefault> defaults = {};  // of what it does not say
  /// Settings for which the training is timed as if it did not have them: "overlap_grad_reduce true".
  std::vector<std::string> unplanned = {};
  /// Settings that say neither groups nor states.
  std::vector<std::string> ignored = {};
  /// Sizes of the training's model, by the flags for them: tune has the model from elsewhere.
  std::vector<Said> sizes = {};
  std::optional<int64_t> nodes = {}, ranks_per_node = {};  // of the training that the file starts; none: unknown

  /// Returns what the file says of the flag; null: nothing.
  const Said* find(std::string_view flag) const;
};

/// Reads a file of any framework that has formats: by its name's end YAML, by its first letter JSON, else a command
/// line, a script's array or lines of both, which YAML may have in MODEL_ARGS; of an argument that is there twice the
/// last one counts. Other YAML and JSON is of the format that has the most of its names in it. Keys that are null, or
/// "auto", say nothing. Settings that matter for no time are ignored. Throws BadInput "PATH:LINE: KEY: ..." for what is
/// no layout, for what no plan has, and for sizes of groups under other names.
LayoutFile read_layout(const std::string& path);

}  // namespace moe::commands
