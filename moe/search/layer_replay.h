#pragma once
// Computes what a decision for one layer takes: replays of its phases, their bounds, and its backward by the gradients
// that are sent in it.
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

// What the search of one layer finds.

/// What was decided for one layer under one schedule, and what that takes.
struct LayerResult {
  std::string_view schedule;
  Decision decision;
  double forward_s = 0, backward_s = 0;
  int forwards = 1;  // more: those that the backward begins with (Recompute::full) are yet to be added to it
  double moe_forward_s = 0, moe_backward_s = 0;  // first dispatch to last combine and expert_dw
  Bound bound;                                   // whatever the degrees
  Bound degree_bound;                            // of the degrees chosen
  bool exact_order = true;  // of G and S, where it is searched: false if not every one is ruled out
  double gap = 0;           // the share by which another order may be faster, at most
  MemoryEstimate memory;    // of one rank that trains the layer with this decision
  double total_s() const { return forwards * forward_s + backward_s; }
};

}  // namespace moe

// Keeps structures compiled for replay, built once: a grid's layers share them.

namespace moe::search {

struct CompiledStructure {
  explicit CompiledStructure(const StructureKey& key)
      : structure(build_structure(key)), replay(*structure), networks(key.networks) {
    for (const Lane& lane : structure->lanes) shares_a_network |= lane.kind == LaneKind::gradient;
  }
  /// Returns the seconds until the last task ends, under the contention that there is.
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
  mutable std::optional<FluidReplay> fluid;  // of the contention last asked for
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

/// What all questions share, whatever their schedule and layer: compiled structures, and scratch.
struct ReplayStore {
  /// Builds a structure once. Structures are kept until they are too many, then all are let go; who asked for one keeps
  /// it as long as it wants.
  std::shared_ptr<const CompiledStructure> get(const StructureKey& key);

  std::map<StructureKey, std::shared_ptr<const CompiledStructure>> structures;
  int64_t kept_tasks = 0;    // of `structures`
  StructureKey ordered_key;  // a searched lane order is asked for once or twice: only the last is kept
  std::shared_ptr<const CompiledStructure> ordered;
  BoundShapes bound_shapes;
  std::vector<double> seconds, ends;  // scratch
};

/// Replays one layer under one schedule that doesn't choose among others. All that it names must outlive it.
class LayerReplay {
 public:
  LayerReplay(const Schedule& of_schedule, const LayerPricer& of_pricer, ReplayStore& shared)
      : schedule(of_schedule), pricer(of_pricer), store(shared) {}

  const Schedule& schedule;
  const LayerPricer& pricer;
  ReplayStore& store;

  /// Returns the seconds of the phases, which may be one alone.
  double seconds(const Decision& decision, Phases phases);
  PhaseBound bound(Phase phase);
  /// Returns one phase at one degree, without gradients.
  PricedPass pass(int degree, Phase phase);
  /// Returns a decision's times, bounds and memory. Throws BadInput for a decision that the schedule can't have.
  LayerResult result(const Decision& decision);

  /// Returns whether the backward has two places for gradients, and some to put there.
  bool splits() const;
  /// Returns the longest paths of a backward, by the slices on them: `first` is the MoE part's slice, `second` the
  /// dense part's, for adaptive and beside_dense alike; beside_dense leaves `first` empty, as a dense layer does.
  SplitPaths backward_paths(const BackwardOption& option);
  /// Returns the seconds of a backward with these bytes in the two places that a model's layer has, whatever waits.
  double backward_with(const BackwardOption& option, LayerSlices slices);
  /// Returns the fastest split of a backward whose other decisions are fixed; any split if none beats `to_beat`.
  Candidate best_split_of(const Decision& decision, double to_beat);
  /// Returns a lower bound on the seconds of a backward of this degree under contention, wherever its gradients are
  /// sent; 0 if no bound is known.
  double least_contended(int degree);

 private:
  std::shared_ptr<const CompiledStructure> compiled(const Decision& decision, Phases phases);
  std::shared_ptr<const CompiledStructure> compiled_pass(int degree, Phase phase);
  /// Returns the pass without how long it is.
  PricedPass price_pass(const CompiledStructure& c) const;
  double makespan(const CompiledStructure& c);
  SplitPaths split_paths(const CompiledStructure& c, double to_beat);
  Candidate best_split_between(SplitPlaces places, Decision decision, double to_beat);
  double moe_seconds(const Decision& decision, Phases phases);
};

}  // namespace moe::search
