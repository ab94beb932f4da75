#pragma once
// Decides where a model's gradients are sent, and each layer's r_b together with it: the search for one stage's layers.
#include <functional>
#include <optional>
#include <vector>

#include "moe/search/detail/model_replay.h"
#include "moe/search/model_search.h"

namespace moe::search {

class ModelReplay;

/// The replays of a model's kinds of layers; none: the model has no such layer.
using KindReplays = EnumArray<LayerKind, std::optional<LayerReplay>, kLayerKinds>;

/// The inputs of a decision for a model, with the decisions so far.
struct ModelQuestion {
  LayerReplay& layer;  // an MoE layer with the model's window
  const ModelShape& model;
  const PartitionStrategy& strategy;
  const DegreeChoice& choice;
  KindReplays& kinds;
  const Schedule& schedule() const { return layer.schedule; }
  const LayerPricer& pricer() const { return layer.pricer; }
};

/// Most plans of a backward to choose from: the exact partition's work grows with the fifth power of their number.
inline constexpr size_t kMostBackwards = 8;

/// Backwards of one layer to choose from, and the longest paths of each.
struct BackwardOptions {
  std::vector<BackwardOption> options;
  std::vector<SplitPaths> paths;
  /// Adds one, unless another one is at least as fast with any slices.
  void add(const BackwardOption& option, const SplitPaths& found);
  /// Keeps at most kMostBackwards: first the fastest without slices, then the most missed one on a grid of slices.
  void keep_few();
  const BackwardOption& best_for(LayerSlices slices, const LayerPricer& pricer) const;
};
/// Returns the backwards to choose from. `layer`: the question's, or the same without contention. A schedule with one
/// degree for both phases keeps `degree_forward`.
BackwardOptions backward_options(const ModelQuestion& asked, LayerReplay& layer, int degree_forward);

/// The backwards to choose from, by kind of layers; a dense layer has one.
using KindOptions = EnumArray<LayerKind, BackwardOptions, kLayerKinds>;
KindOptions kind_options(const ModelQuestion& asked, KindReplays& kinds, int degree_forward);

/// Returns the decision with the partition's slices, and for each layer the best backward of its kind for its slices.
ModelDecision decided(const ModelShape& model, const Partition& partition,
                      const std::function<BackwardOption(LayerKind, LayerSlices)>& best_for, ModelDecision decision);

/// A model's layers in a partition problem, by kind.
using PartitionLayers = EnumArray<LayerKind, PartitionLayer, kLayerKinds>;
/// Returns those of the kinds that have a replay. The arguments must outlive them.
PartitionLayers partition_layers(const Schedule& schedule, const KindReplays& kinds, const KindOptions& options);
/// Returns the problem of a stage's layers. The arguments, and everything they refer to, must outlive the problem.
PartitionProblem stage_problem(const ModelQuestion& asked, const PartitionLayers& layers, int stage);
/// Returns a layer of such a problem, as partition_problem makes them.
PartitionLayer partition_layer(const Schedule& schedule, const LayerPricer& pricer,
                               const std::vector<SplitPaths>& by_degree);

/// Returns one stage's backward as a partition problem with equal layers: seconds are the least over degrees of the
/// replayed backward with bytes in its MoE part and beside its dense part. `pricer` and `by_degree` must outlive it.
PartitionProblem partition_problem(const Schedule& schedule, const LayerPricer& pricer, int layers,
                                   const std::vector<SplitPaths>& by_degree);

/// Decides r_b for each layer and a split of the gradients that wait there. Strategy `exact` compares all strategies by
/// replays of the model and continues from the best. `layer`: the decision for one layer by itself.
void split_gradients(const ModelQuestion& asked, const Decision& layer, ModelResult& result);

// Improves the places of a model's gradients if layers' times don't add up: under contention, and if one layer's tasks
// run on into the next.

/// Descends from the result and other starting points until no small move makes the whole model's replay faster.
void improve_by_replay(const ModelQuestion& asked, ModelReplay& replay, const Decision& layer, ModelResult& result);

}  // namespace moe::search
