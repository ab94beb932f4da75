#pragma once
// Tunes a whole model under one schedule: degrees, and where the gradients of all layers are sent (FSMoE section 5).
#include <algorithm>
#include <span>
#include <string_view>

#include "moe/schedule/model_plan.h"
#include "moe/search/layer_search.h"
#include "moe/search/partition.h"

namespace moe {

/// How gradients are spread over the layers of a schedule that splits them.
struct PartitionStrategy {
  std::string_view name, summary;
  Partition (*solve)(const PartitionProblem&);
  bool compares = false;  // replays what it finds beside what the others find, and improves the best by replays
  bool fills_moe =
      false;  // puts gradients into MoE parts whatever these hide: nothing for a schedule without such places
};
/// Returns the strategies: exact, paper (both steps), step1, none.
std::span<const PartitionStrategy> partition_strategies();

/// Returns the schedules whose plans `wave` may take: all that neither order iterations freely nor choose among others.
std::vector<const Schedule*> rivals_of_wave();

struct ModelResult {
  std::string_view schedule;
  const Schedule* variant =
      nullptr;  // whose plan it is, of a schedule that chooses, and of `wave` where it is another's
  ModelDecision decision;
  Partition partition;  // of a stage's layers, or where stages_apart of all; empty where the schedule splits nothing
  Plan plan;
  Timeline timeline;          // the replay of the plan, all micro-batches and stages
  int last_backward = -1;     // the last attention task: gradients after it are the tail
  double last_forward_s = 0;  // when the last forward task of any stage ends
  double bound_s = 0;         // no degrees and no partition take less: model_bound
  double at_least_s = 0;      // nor less at the degrees asked for; with one stage and micro-batch contention counts
  double total_s() const { return timeline.makespan_s; }
  /// Returns the share by which the best decision of this schedule may be faster, at most.
  double gap() const { return std::max(0.0, total_s() / at_least_s - 1); }
  bool exact() const { return gap() <= 1e-9; }
};

class ModelSearch {
 public:
  /// `checks`: whether the plans that it returns are checked (check_plan): a search that only times many may leave that
  /// out.
  explicit ModelSearch(bool checks = true) : checks_(checks) {}

  /// Tunes a model; `pricer` prices one layer of it. Degrees are those of one layer, save of pipemoe+lina, whose one
  /// degree is the best of the whole model's replays, and where gradients are split: there each layer's r_b fits what
  /// it sends (with Rounding::lcm, among those that cut that one layer's rows into equal chunks). The replay of the
  /// whole plan chooses how experts are packed, within Lina's rule and a rank's memory, and gives the time. Strategy
  /// `exact` is never slower than another one. Under contention it then descends by small moves, within an effort,
  /// unless stages_apart: there each stage's gradients are split for themselves. A schedule of iterations keeps the
  /// activations of one layer more than one micro-batch has, or what its turns need; `wave` those of two micro-batches
  /// (under GPipe of all) where `choice.holds` them. It is never slower than another schedule whose plan is held, as it
  /// then is that plan. All but `wave` throw Unsupported for several stages.
  ModelResult tune(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                   DegreeChoice choice = {}, const PartitionStrategy& strategy = partition_strategies().front());

 private:
  struct Asked {
    const Schedule& schedule;
    const LayerPricer& pricer;
    const ModelShape& model;
    const PartitionStrategy& strategy;
    const DegreeChoice& choice;
  };
  ModelResult tune_as(const Asked& asked, const LayerResult& layer);
  ModelResult tune_iteration(const Asked& asked);
  static ModelResult order_iteration(const Asked& asked, int keep);
  void try_degrees(const Asked& asked, LayerResult& layer, double least_s);

  bool checks_;
  LayerSearch layers_;
};

}  // namespace moe
