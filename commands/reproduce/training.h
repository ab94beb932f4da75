#pragma once
// Steps of training that others measured, beside what a plan of the same model, layout and cluster takes.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "commands/reproduce/published.h"

namespace moe::reproduce {

/// What a step is made of, in the order in which it is shown: seconds of the busiest stage by kind of cost.
inline constexpr std::array<std::string_view, 11> kStepCosts{
    "attention", "experts", "dense", "gate", "permute", "alltoall", "tp", "head", "sends", "optimizer", "bubble"};

struct PredictedStep {
  std::optional<double> step_s;  // empty: `reason` says why
  std::string reason;
  std::map<std::string_view, double> costs;  // by kStepCosts
  double hidden_s = 0;                       // of these, what runs beside computation
  double passes = 0;                         // of layers over micro-batches, of the stage with most layers
  std::vector<std::string> notes;            // what the plan leaves out or replaces, and how it is priced
};
/// Plans the run on the cluster of its GPUs and dispatcher, under DeepSpeed-MoE's schedule, and replays it.
PredictedStep predicted_step(const PublishedRun& run);

/// Returns tokens a second and GPU.
double tokens_per_gpu(const PublishedRun& run, double step_s);

/// Returns Kendall's tau of two rankings by these values; pairs whose measured values differ by kTie or less do not
/// count. Empty: no pair counts.
inline constexpr double kTie = 0.03;
std::optional<double> kendall_tau(std::span<const double> measured, std::span<const double> predicted);

}  // namespace moe::reproduce
