#pragma once
// Tunes a whole model under one schedule: degrees, and where the gradients of all layers are sent (FSMoE section 5).
#include <algorithm>
#include <span>
#include <string_view>

#include "moe/schedule/model_plan.h"
#include "moe/search/degrees.h"
#include "moe/search/partition.h"

namespace moe {

/// How gradients are spread over the layers of a schedule that splits them.
struct PartitionStrategy {
  std::string_view name, summary;
  Partition (*solve)(const PartitionProblem&);
};
/// exact, paper (both steps), step1, none.
std::span<const PartitionStrategy> partition_strategies();

class ModelReplay;

struct ModelResult {
  std::string_view schedule;
  const Schedule* variant = nullptr;  // whose plan it is, of a schedule that chooses
  ModelDecision decision;
  Partition partition;  // of a stage's layers; empty where the schedule splits nothing
  Plan plan;
  Timeline timeline;          // the replay of the plan, all micro-batches and stages
  int last_backward = -1;     // the last attention task: gradients after it are the tail
  double last_forward_s = 0;  // when the last forward task of any stage ends
  double bound_s = 0;         // no degrees and no partition take less: model_bound
  double at_least_s = 0;      // the same of the degrees asked for; contention counted with one stage and micro-batch
  double total_s() const { return timeline.makespan_s; }
  /// The share by which the best decision of this schedule may be faster, at most.
  double gap() const { return std::max(0.0, total_s() / at_least_s - 1); }
  bool exact() const { return gap() <= 1e-9; }
};

class ModelSearch {
 public:
  /// `pricer` prices one layer of the model. Degrees are those of one layer without gradients, save where these are
  /// split: there each layer's r_b fits what it sends (with Rounding::lcm, among those that cut that one layer's rows
  /// into equal chunks). Experts are packed as the whole plan's replay and a rank's
  /// memory want it, within Lina's rule. The time is the replay's of the whole plan. Of strategy `exact` it is never
  /// above that of another strategy, and under contention of no small move from there either.
  ModelResult tune(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                   const PartitionStrategy& strategy, DegreeChoice choice = {});

 private:
  struct Asked {
    const Schedule& schedule;
    const LayerPricer& pricer;
    const ModelShape& model;
    const PartitionStrategy& strategy;
    const DegreeChoice& choice;
  };
  /// Backwards of one layer that may be chosen, and the longest paths of each.
  struct Options {
    std::vector<BackwardOption> options;
    std::vector<SplitPaths> paths;
    void add(const BackwardOption& option, const SplitPaths& found);
    const BackwardOption& best_for(LayerSlices slices, const LayerPricer& pricer) const;
  };
  static ModelDecision decided(const Partition& partition, const std::function<BackwardOption(LayerSlices)>& best_for,
                               ModelDecision decision);
  ModelResult tune_as(const Asked& request, const LayerResult& layer);
  void split(const Asked& asked, const Decision& layer, ModelResult& result);
  void improve(const Asked& asked, ModelReplay& replay, const Decision& layer, ModelResult& result);
  Options options(const Asked& asked, const LayerPricer& pricer, int degree_forward);
  std::vector<BackwardOption> contended_options(const Asked& asked, int degree_forward);
  std::vector<ModelDecision> contended_starts(const Asked& asked, const PartitionProblem& problem,
                                              const std::vector<BackwardOption>& options, const Decision& layer,
                                              const ModelDecision& from);
  PartitionProblem contended_problem(const Asked& asked, const std::vector<BackwardOption>& options, int layers);
  double least_seconds(const Asked& asked, int layers);

  LayerSearch layers_;
};

/// One stage's backward as a partition problem: a layer's seconds are the least over degrees of its replayed backward
/// with so many bytes in its MoE part and so many beside its dense part. `pricer` and `by_degree` must outlive it.
PartitionProblem partition_problem(const Schedule& schedule, const LayerPricer& pricer, int layers,
                                   const std::vector<SplitPaths>& by_degree);

}  // namespace moe
