#pragma once
// Tunes a whole model under one schedule: degrees, and where the gradients of all layers are sent (FSMoE section 5).
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

struct ModelResult {
  std::string_view schedule;
  const Schedule* variant = nullptr;  // whose plan it is, of a schedule that chooses
  ModelDecision decision;
  Partition partition;  // of a stage's layers; empty where the schedule splits nothing
  Plan plan;
  Timeline timeline;          // the replay of the plan, all micro-batches and stages
  int last_backward = -1;     // the last attention task: gradients after it are the tail
  double last_forward_s = 0;  // when the last forward task of any stage ends
  double bound_s = 0;         // no degrees and no partition take less: the fullest stage's busiest lane
  double total_s() const { return timeline.makespan_s; }
};

class ModelSearch {
 public:
  /// `pricer` prices one layer of the model. Degrees are those of one layer without gradients, save where these are
  /// split: there each layer's r_b fits what it sends. Experts are packed as the whole plan's replay and a rank's
  /// memory want it, within Lina's rule. The time is the replay's of the whole plan.
  ModelResult tune(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                   const PartitionStrategy& strategy, DegreeChoice choice = {});

 private:
  struct Request {
    const Schedule& schedule;
    const LayerPricer& pricer;
    const ModelShape& model;
    const PartitionStrategy& strategy;
    DegreeChoice choice;
  };
  ModelResult tune_as(const Request& request, const LayerResult& layer);
  void split(const Request& request, ModelResult& result);

  LayerSearch layers_;
};

/// One stage's backward as a partition problem: a layer's seconds are the least over degrees of its replayed backward
/// with so many bytes in its MoE part and so many beside its dense part. `pricer` and `by_degree` must outlive it.
PartitionProblem partition_problem(const Schedule& schedule, const LayerPricer& pricer, int layers,
                                   const std::vector<SplitPaths>& by_degree);

}  // namespace moe
