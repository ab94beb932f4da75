#pragma once
// Published training steps beside the predicted time of the same model, layout and cluster.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "commands/reproduce/published.h"

namespace moe::reproduce {

/// The kinds of cost of a step, in the order of display: seconds of the busiest stage.
inline constexpr std::array<std::string_view, 11> kStepCosts{
    "attention", "experts", "dense", "gate", "permute", "alltoall", "tp", "head", "sends", "optimizer", "bubble"};

struct PredictedStep {
  std::optional<double> step_s;  // none: `reason` gives the reason
  std::string reason;
  std::map<std::string_view, double> costs;  // by kStepCosts
  double hidden_s = 0;                       // part of these costs that overlaps with computation
  double passes = 0;               // number of passes of layers over micro-batches, on the stage with most layers
  std::vector<std::string> notes;  // parts that the plan omits or replaces, and how it is priced
};
/// Plans the run on the cluster of its GPUs and dispatcher, under DeepSpeed-MoE's schedule, and replays it.
PredictedStep predicted_step(const PublishedRun& run);

/// Returns tokens per second and GPU.
double tokens_per_gpu(const PublishedRun& run, double step_s);

/// Returns Kendall's tau of two rankings by these values; pairs whose measured values differ by kTie or less do not
/// count. None if no pair counts.
inline constexpr double kTie = 0.03;
std::optional<double> kendall_tau(std::span<const double> measured, std::span<const double> predicted);

}  // namespace moe::reproduce
