#pragma once
// Computes the seconds of a decision for one layer: replays of its phases, their bounds, and its backward with the
// gradients that are sent in it.
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "moe/plan/memory.h"
#include "moe/prices/pricer.h"
#include "moe/schedule/schedule.h"
#include "moe/search/contended_bound.h"
#include "moe/search/gradient_split.h"
#include "moe/simulator/bounds.h"
#include "moe/simulator/fluid_replay.h"

namespace moe {

// The result of the search for one layer.

/// A decision for one layer under one schedule, and its seconds.
struct LayerResult {
  std::string_view schedule;
  Decision decision;
  double forward_s = 0, backward_s = 0;
  int forwards = 1;  // more: the forwards that the backward repeats (Recompute::full), not yet added to it
  double moe_forward_s = 0, moe_backward_s = 0;  // first dispatch to last combine and expert_dw
  Bound bound;                                   // over all degrees
  Bound degree_bound;                            // at the chosen degrees
  bool exact_order = true;  // of G and S, if it is searched: false if some orders are neither tried nor excluded
  double gap = 0;           // share by which another order may be faster, at most
  MemoryEstimate memory;    // of one rank that trains the layer with this decision
  double total_s() const { return forwards * forward_s + backward_s; }
};

}  // namespace moe

// Structures that are compiled for replay once and shared by a grid's layers.

namespace moe::search {

struct CompiledStructure {
  explicit CompiledStructure(const StructureKey& key)
      : structure(build_structure(key)), replay(*structure), networks(key.networks) {
    for (const Lane& lane : structure->lanes) shares_a_network |= lane.kind == LaneKind::gradient;
  }
  /// Returns the seconds until the last task ends, under `contention`.
  double makespan(std::span<const double> seconds, const Contention& contention, std::vector<double>& ends) const {
    if (contention.none() && !shares_a_network) return replay.makespan(seconds, ends);
    return under(contention).makespan(seconds, ends);
  }
  const FluidReplay& under(const Contention& contention) const {
    if (!fluid || fluid_contention != contention) {
      fluid.emplace(*structure, networks, contention);
      fluid_contention = contention;
    }
    return *fluid;
  }

  std::shared_ptr<const Structure> structure;
  Replay replay;
  GroupNetworks networks;
  bool shares_a_network = false;
  mutable std::optional<FluidReplay> fluid;  // for the most recent contention
  mutable Contention fluid_contention;
};

}  // namespace moe::search

namespace moe {
struct LayerSlices;
}

namespace moe::search {

/// A degree of a layer's backward and the order on its intra lane.
struct BackwardOption {
  int degree = 1;
  LaneOrder order = {};
};

/// A decision, for both phases or only one, and its seconds.
struct Candidate {
  Decision decision;
  double seconds = 0;
};

/// State that all calls share, for any schedule and layer: compiled structures and scratch.
struct ReplayStore {
  /// Returns a structure, built once. The cache is cleared when it exceeds kMostTasks tasks; callers share ownership of
  /// what it returned.
  std::shared_ptr<const CompiledStructure> get(const StructureKey& key);

  std::map<StructureKey, std::shared_ptr<const CompiledStructure>> structures;
  int64_t kept_tasks = 0;    // tasks of `structures`
  StructureKey ordered_key;  // a searched lane order is requested only once or twice, so only the last is kept
  std::shared_ptr<const CompiledStructure> ordered;
  BoundShapes bound_shapes;
  std::vector<double> seconds, ends;  // scratch
};

/// Replays one layer under one schedule that doesn't choose among others. All arguments must outlive it.
class LayerReplay {
 public:
  LayerReplay(const Schedule& of_schedule, const LayerPricer& of_pricer, ReplayStore& shared)
      : schedule(of_schedule), pricer(of_pricer), store(shared) {}

  const Schedule& schedule;
  const LayerPricer& pricer;
  ReplayStore& store;

  /// Returns the seconds of one or both phases.
  double seconds(const Decision& decision, Phases phases);
  PhaseBound bound(Phase phase);
  /// Returns one phase at one degree, without gradients.
  PricedPass pass(int degree, Phase phase);
  /// Returns a decision's times, bounds and memory. Throws BadInput for a decision that the schedule does not allow.
  LayerResult result(const Decision& decision);

  /// Returns whether the backward has two places for gradients, and gradients to put there.
  bool splits() const;
  /// Returns the longest paths of a backward, by the slices on them: `first` is in the MoE part, `second` beside the
  /// dense part, for adaptive and beside_dense alike; `first` is unused by beside_dense and by dense layers.
  SplitPaths backward_paths(const BackwardOption& option);
  /// Returns the seconds of a backward with these bytes in the two places of a model's layer, whether or not they wait.
  double backward_with(const BackwardOption& option, LayerSlices slices);
  /// Returns the fastest split of a backward whose other decisions are fixed; any split if none beats `to_beat`.
  Candidate best_split_of(const Decision& decision, double to_beat);
  /// Returns a lower bound on the seconds of a backward of this degree under contention, wherever its gradients are
  /// sent; 0 if no bound is known.
  double least_contended(int degree);

 private:
  std::shared_ptr<const CompiledStructure> compiled(const Decision& decision, Phases phases);
  std::shared_ptr<const CompiledStructure> compiled_pass(int degree, Phase phase);
  /// Returns the pass without its makespan.
  PricedPass price_pass(const CompiledStructure& c) const;
  double makespan(const CompiledStructure& c);
  SplitPaths split_paths(const CompiledStructure& c, double to_beat);
  Candidate best_split_between(SplitPlaces places, Decision decision, double to_beat);
  double moe_seconds(const Decision& decision, Phases phases);
};

}  // namespace moe::search
