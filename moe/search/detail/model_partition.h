#pragma once
// Decides where a model's gradients are sent, and each layer's r_b with it: the search for one stage's layers.
#include <functional>
#include <vector>

#include "moe/search/detail/model_replay.h"
#include "moe/search/model_search.h"

namespace moe::search {

class ModelReplay;

/// What is asked of a model whose layers' decisions are made so far.
struct ModelQuestion {
  LayerReplay& layer;  // any of its layers with experts: they are alike
  const ModelShape& model;
  const PartitionStrategy& strategy;
  const DegreeChoice& choice;
  LayerReplay* dense = nullptr;  // any of its dense layers; null: there are none
  const Schedule& schedule() const { return layer.schedule; }
  const LayerPricer& pricer() const { return layer.pricer; }
};

/// The exact partition's work grows with the fifth power of the backwards to choose from.
inline constexpr size_t kMostBackwards = 8;

/// Backwards of one layer that may be chosen, and the longest paths of each.
struct BackwardOptions {
  std::vector<BackwardOption> options;
  std::vector<SplitPaths> paths;
  /// Adds one, unless another is as fast with any slices.
  void add(const BackwardOption& option, const SplitPaths& found);
  /// Keeps at most kMostBackwards: first the fastest without slices, then what is missed most on a grid of slices.
  void keep_few();
  const BackwardOption& best_for(LayerSlices slices, const LayerPricer& pricer) const;
};
/// Returns the backwards to choose from. `layer`: the question's, or the same without contention. A schedule with one
/// degree for both phases keeps `degree_forward`.
BackwardOptions backward_options(const ModelQuestion& asked, LayerReplay& layer, int degree_forward);

/// Returns the decision with the partition's slices, the backward of each layer with experts being the best for them.
ModelDecision decided(const ModelShape& model, const Partition& partition,
                      const std::function<BackwardOption(LayerSlices)>& best_for, ModelDecision decision);

/// What a model's layers are in a partition problem. `dense`: where it has such.
struct PartitionLayers {
  PartitionLayer moe, dense;
};
/// Returns the problem of a stage's layers, which must outlive the problem, as must all that they name.
PartitionProblem stage_problem(const ModelQuestion& asked, const PartitionLayers& layers, int stage);
/// Returns a layer of such a problem, as partition_problem makes them.
PartitionLayer partition_layer(const Schedule& schedule, const LayerPricer& pricer,
                               const std::vector<SplitPaths>& by_degree);

/// Returns one stage's backward as a partition problem, its layers alike: seconds are the least over degrees of the
/// replayed backward with bytes in its MoE part and beside its dense part. `pricer` and `by_degree` must outlive it.
PartitionProblem partition_problem(const Schedule& schedule, const LayerPricer& pricer, int layers,
                                   const std::vector<SplitPaths>& by_degree);

/// Decides one r_b a layer and a split of what waits there; strategy `exact` compares all strategies by replays of the
/// model and goes on from the best. `layer`: what one layer does by itself.
void split_gradients(const ModelQuestion& asked, const Decision& layer, ModelResult& result);

// Improves where a model's gradients go where layers' times don't add up: under contention, and where one layer runs on
// into the next.

/// Descends from the result and other starts to where no small move of the whole model's replay is faster.
void improve_by_replay(const ModelQuestion& asked, ModelReplay& replay, const Decision& layer, ModelResult& result);

}  // namespace moe::search
