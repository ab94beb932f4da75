#pragma once
// The search for a whole model under one schedule: degrees, and the places where the gradients of all layers are sent
// (FSMoE section 5).
#include <algorithm>
#include <span>
#include <string_view>

#include "moe/schedule/model_plan.h"
#include "moe/search/layer_search.h"
#include "moe/search/partition.h"

namespace moe {

/// A strategy for distributing gradients over the layers of a model, for schedules that split gradients.
struct PartitionStrategy {
  std::string_view name, summary;
  Partition (*solve)(const PartitionProblem&);
  bool compares = false;  // also replays the results of the other strategies, and improves the best one
  bool fills_moe =
      false;  // puts gradients into MoE parts regardless of what these hide; skipped for schedules without such places
};
/// Returns the strategies: exact, paper (both steps), step1, none.
std::span<const PartitionStrategy> partition_strategies();

/// Returns the schedules whose plans `wave` may use: all except those with IterationOrder::any and those with variants.
std::vector<const Schedule*> rivals_of_wave();

struct ModelResult {
  std::string_view schedule;
  const Schedule* variant =
      nullptr;  // schedule of the plan, for schedules that choose, and for `wave` if it uses another's plan
  ModelDecision decision;
  Partition partition;  // of one stage, or of all if stages_decide_separately(); empty if the schedule does not split
  Plan plan;
  Timeline timeline;          // the replay of the plan, all micro-batches and stages
  int last_backward = -1;     // last attention task; gradients sent after it are the tail
  double last_forward_s = 0;  // end of the last forward task of all stages
  double bound_s = 0;         // lower bound over all degrees and partitions (model_bound)
  /// Lower bound at the requested degrees, with contention if there is one stage and one micro-batch.
  double at_least_s = 0;
  double total_s() const { return timeline.makespan_s; }
  /// Returns the largest share by which this result may be slower than the schedule's best decision.
  double gap() const { return std::max(0.0, total_s() / at_least_s - 1); }
  bool exact() const { return gap() <= 1e-9; }
};

class ModelSearch {
 public:
  /// `checks`: whether returned plans are checked (check_plan). Searches that only time many plans may skip this.
  explicit ModelSearch(bool checks = true) : checks_(checks) {}

  /// Tunes a model; `pricer` prices one layer of it.
  /// - Degrees are those of a single layer, with two exceptions: pipemoe+lina's degree is the best by replays of the
  ///   model, and if gradients are split, each layer's r_b is chosen together with the gradients it sends (with
  ///   Rounding::lcm, among degrees that cut the single layer's rows into equal chunks).
  /// - Packing is the best by replays, within Lina's rule and a rank's memory.
  /// - Strategy `exact` is never slower than the others. Under contention it improves its result by small moves, with
  ///   limited effort, unless stages_decide_separately(): then each stage's gradients are split separately.
  /// - A schedule that orders iterations keeps the activations of one layer more than a micro-batch has, or what its
  ///   turns need; `wave` those of two micro-batches (under GPipe, of all) if `choice.holds` accepts that. `wave` is
  ///   never slower than another schedule whose plan fits into memory, because it can use that plan. All of them except
  ///   `wave` throw Unsupported for several stages.
  ModelResult tune(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                   DegreeChoice choice = {}, const PartitionStrategy& strategy = partition_strategies().front());

 private:
  struct SearchQuery {
    const Schedule& schedule;
    const LayerPricer& pricer;
    const ModelShape& model;
    const PartitionStrategy& strategy;
    const DegreeChoice& choice;
  };
  ModelResult tune_as(const SearchQuery& query, const LayerResult& layer);
  ModelResult tune_iteration(const SearchQuery& query);
  /// Tunes another schedule for `wave`; empty if the model, a price or the degrees are not supported.
  std::optional<ModelResult> tune_rival(const SearchQuery& query, const Schedule& rival, const LayerPricer& pricer);
  static ModelResult order_iteration(const SearchQuery& query, int keep);
  void try_degrees(const SearchQuery& query, LayerResult& layer, double min_s);

  bool checks_;
  LayerSearch layers_;
};

}  // namespace moe
