#pragma once
// One layer, or a stack of like layers, under several schedules, as a verb asks for it.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "moe/cost/pricer.h"
#include "moe/measure/layers/layer_bench.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/degrees.h"
#include "verbs/run/target.h"
#include "verbs/selection.h"

namespace moe::verbs {

/// Says how often the layer is there: layers in a row, micro-batches of its batch, in a pipeline of its stages.
struct Stacked {
  int layers = 1, micro_batches = 1;
  PipelineOrder order = PipelineOrder::gpipe;
  int virtual_stages = 1;
  int64_t vocabulary = 0;  // of a model, with embedding, output projection and loss around the layers; 0: no ends
  bool clips = false;      // of a model, as its optimizer is
  std::optional<OptimizerKind> optimizer = {};
  bool tied = false;  // of a model: its output projection is the embedding
  DenseLayers dense = {};
};

struct LayerJob {
  std::string name;
  LayerCase shape;
  Stacked stacked;
  bool one_layer() const {
    return stacked.layers == 1 && stacked.micro_batches == 1 && shape.parallel.pp == 1 && stacked.vocabulary == 0;
  }
  bool predicted = true;  // else the degrees are given, and all is planned by nominal prices, which predict nothing
  Profile predicted_by;   // what the plans are tuned and predicted with
  std::optional<Profile> paced_by;  // what the emulated cluster is; none: this machine, unpaced
  std::vector<const Schedule*> schedules;
  DegreeChoice degrees;
  std::optional<Plan> plan;         // of a file, run as it stands under its schedule's name; none: planned
  const Schedule* tried = nullptr;  // runs at each of these degrees too, forward and backward alike, but those above
  std::vector<int> tried_degrees;   // largest_degree
  PricingOptions pricing;
  measure::LayerBenchSettings settings;

  std::string_view backend() const { return settings.ranks.processes ? settings.ranks.processes->backend() : "local"; }
};

/// Returns what the jobs of one run share: all but a layer and the profile that predicts it. `settings`: what the
/// target does not decide.
LayerJob jobs_on(const Target& target, const Selection& selection, measure::LayerBenchSettings settings);

/// Says why a job can't run.
struct RunRefusal {
  CaseStatus status;
  std::string reason;
};
/// Runs `job`, and returns why it can't run; none: it did. Threads fail alone: of `processes` a rank's own failure ends
/// them all, and is thrown, as missing hardware is.
std::optional<RunRefusal> refusal_of(const std::function<void()>& job, const World* processes);

/// Returns the tried degrees that the layer has rows for.
std::vector<int> runnable_degrees(const LayerJob& job);

/// Returns "run/LAYER/SCHEDULE", of a tried degree "run/LAYER/SCHEDULE/r4".
std::string run_key(const std::string& layer, std::string_view schedule, int tried_degree = 0);

}  // namespace moe::verbs
