#pragma once
// Tunes a whole model under one schedule: degrees, and where the gradients of all layers are sent (FSMoE section 5).
#include <algorithm>
#include <span>
#include <string_view>

#include "moe/schedule/model_plan.h"
#include "moe/search/layer_search.h"
#include "moe/search/partition.h"

namespace moe {

/// A way to distribute gradients over the layers of a schedule that splits them.
struct PartitionStrategy {
  std::string_view name, summary;
  Partition (*solve)(const PartitionProblem&);
  bool compares = false;  // also replays the others' results, and improves the best by replays
  bool fills_moe =
      false;  // puts gradients into MoE parts regardless of what these hide; skipped for schedules without such places
};
/// Returns the strategies: exact, paper (both steps), step1, none.
std::span<const PartitionStrategy> partition_strategies();

/// Returns the schedules whose plans `wave` may use: all that neither order iterations freely nor choose among others.
std::vector<const Schedule*> rivals_of_wave();

struct ModelResult {
  std::string_view schedule;
  const Schedule* variant =
      nullptr;  // schedule of the plan, for schedules that choose, and for `wave` if it uses another's plan
  ModelDecision decision;
  Partition partition;  // of a stage's layers, or of all if stages_apart; empty if the schedule splits nothing
  Plan plan;
  Timeline timeline;          // the replay of the plan, all micro-batches and stages
  int last_backward = -1;     // last attention task: gradients after it are the tail
  double last_forward_s = 0;  // when the last forward task of any stage ends
  double bound_s = 0;         // lower bound over all degrees and partitions: model_bound
  double at_least_s = 0;      // the same at the requested degrees; includes contention for one stage and micro-batch
  double total_s() const { return timeline.makespan_s; }
  /// Returns the largest share by which the best decision of this schedule may be faster.
  double gap() const { return std::max(0.0, total_s() / at_least_s - 1); }
  bool exact() const { return gap() <= 1e-9; }
};

class ModelSearch {
 public:
  /// `checks`: whether returned plans are checked (check_plan); a search that only times many plans may skip
  /// that.
  explicit ModelSearch(bool checks = true) : checks_(checks) {}

  /// Tunes a model; `pricer` prices one layer of it. Degrees are those of one layer, except that pipemoe+lina's single
  /// degree is the best by replays of the model and that, if gradients are split, each layer's r_b fits the gradients
  /// it sends (with Rounding::lcm, among degrees that cut the single layer's rows into equal chunks). The replay of the
  /// plan decides how experts are packed, within Lina's rule and a rank's memory, and gives the time. Strategy `exact`
  /// is never slower than another one. Under contention, it then descends by small moves, with limited effort, unless
  /// stages_apart: then each stage's gradients are split separately. A schedule of iterations keeps the activations of
  /// one layer more than a micro-batch has, or what its turns need; `wave` those of two micro-batches (under GPipe, of
  /// all) if `choice.holds` them. `wave` is never slower than a schedule whose plan fits, because it then uses that
  /// plan. All except `wave` throw Unsupported for several stages.
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
  /// Tunes a rival; none if it cannot have the model, the prices or the requested degrees.
  std::optional<ModelResult> tune_rival(const Asked& asked, const Schedule& rival, const LayerPricer& pricer);
  static ModelResult order_iteration(const Asked& asked, int keep);
  void try_degrees(const Asked& asked, LayerResult& layer, double least_s);

  bool checks_;
  LayerSearch layers_;
};

}  // namespace moe
