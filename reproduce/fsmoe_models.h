#pragma once
// FSMoE's models (section 6.4) as steps of like layers.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reproduce/priced.h"

namespace moe::reproduce {

/// A model as one of the figures runs it.
struct ModelRun {
  std::string cluster, model;  // NAME of configs/clusters; the model as FSMoE prints it
  int nodes = 0;               // of the cluster; 0: all
  int64_t seq = 0;             // 0: the model's own on that cluster
  int stages = 1, micro_batches = 1;
  auto operator<=>(const ModelRun&) const = default;
  std::string name() const;  // "mixtral-7b on testbed-a"
};

/// Holds the seconds of a training step by schedule; empty: no row prices it.
using StepSeconds = std::map<std::string, std::optional<double>>;
StepSeconds step_seconds(const ModelRun& run, const std::vector<std::string>& schedules, const Assumptions* assumed,
                         std::set<std::string>& missing);

/// Returns how many times faster `schedule` is than `over`.
std::optional<double> speedup_of(const StepSeconds& steps, const std::string& schedule, const std::string& over);

/// Returns the schedules of Figures 6 to 8, DeepSpeed-MoE both ways.
const std::vector<std::string>& figure_schedules();

/// Returns the conventions that every model's figure shares.
std::vector<std::string> model_conventions();

}  // namespace moe::reproduce
