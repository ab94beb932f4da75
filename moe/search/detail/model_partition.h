#pragma once
// The search for the places of a model's gradients together with each layer's r_b, for the layers of one stage.
#include <functional>
#include <optional>
#include <vector>

#include "moe/search/detail/model_replay.h"
#include "moe/search/model_search.h"

namespace moe::search {

class ModelReplay;

/// The replay of each kind of layer in a model; empty if the model has no such layer.
using KindReplays = EnumArray<LayerKind, std::optional<LayerReplay>, kLayerKinds>;

/// The inputs of a decision for a model.
struct ModelQuery {
  LayerReplay& layer;  // of an MoE layer, with the window if the model has one
  const ModelShape& model;
  const PartitionStrategy& strategy;
  const DegreeChoice& choice;
  KindReplays& kinds;
  const Schedule& schedule() const { return layer.schedule; }
  const LayerPricer& pricer() const { return layer.pricer; }
};

/// Limit for the backwards of a layer to choose from. The exact partition's work grows with its fifth power.
inline constexpr size_t kMaxBackwards = 8;

/// The backwards of one layer to choose from, with the longest paths of each.
struct BackwardOptions {
  std::vector<BackwardOption> options;
  std::vector<SplitPaths> paths;
  /// Adds a backward, unless another one is at least as fast for all slices.
  void add(const BackwardOption& option, const SplitPaths& found);
  /// Keeps at most kMaxBackwards: the fastest without slices, then repeatedly the one that improves the result most on
  /// a grid of slices.
  void keep_best_options();
  const BackwardOption& best_for(LayerSlices slices, const LayerPricer& pricer) const;
};
/// Returns the backwards to choose from. `layer`: query.layer, or the same without contention. If the schedule has one
/// degree for both phases, the only choice is `degree_forward`.
BackwardOptions backward_options(const ModelQuery& query, LayerReplay& layer, int degree_forward);

/// The backwards to choose from for each kind of layer; a dense layer has one.
using KindOptions = EnumArray<LayerKind, BackwardOptions, kLayerKinds>;
KindOptions kind_options(const ModelQuery& query, KindReplays& kinds, int degree_forward);

/// Returns `decision` with the partition's slices and, for each layer, the best backward of its kind for its slices.
ModelDecision decided(const ModelShape& model, const Partition& partition,
                      const std::function<BackwardOption(LayerKind, LayerSlices)>& best_for, ModelDecision decision);

/// The PartitionLayer of each kind of layer in a model.
using PartitionLayers = EnumArray<LayerKind, PartitionLayer, kLayerKinds>;
/// Returns the PartitionLayer of each kind that has a replay. The arguments must outlive the result.
PartitionLayers partition_layers(const Schedule& schedule, const KindReplays& kinds, const KindOptions& options);
/// Returns the problem of a stage's layers. The arguments, and everything they refer to, must outlive the problem.
PartitionProblem stage_problem(const ModelQuery& query, const PartitionLayers& layers, int stage);
/// Returns a layer of a partition problem. The arguments must outlive the result.
PartitionLayer partition_layer(const Schedule& schedule, const LayerPricer& pricer,
                               const std::vector<SplitPaths>& by_degree);

/// Returns one stage's backward as a partition problem with equal layers. A layer's seconds are the minimum over
/// degrees of the backward with the given bytes in its MoE part and beside its dense part. `pricer` and `by_degree`
/// must outlive it.
PartitionProblem partition_problem(const Schedule& schedule, const LayerPricer& pricer, int layers,
                                   const std::vector<SplitPaths>& by_degree);

/// Decides r_b and the slices of gradients for each layer. Strategy `exact` compares the results of all strategies by
/// replays of the model and continues from the best. `layer`: the decision for a single layer.
void split_gradients(const ModelQuery& query, const Decision& layer, ModelResult& result);

// Improvement of the places of a model's gradients by replays, for cases in which the times of layers don't add up:
// under contention, or if a layer's tasks overlap with the next layer.

/// Improves the result, and other starting points, by small moves until none makes the model's replay faster.
void improve_by_replay(const ModelQuery& query, ModelReplay& replay, const Decision& layer, ModelResult& result);

}  // namespace moe::search
