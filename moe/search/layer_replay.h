#pragma once
// The seconds of a decision for one layer: replays of its phases, their bounds, and its backward with the gradients
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

// The result of the search for one layer.

/// A decision for one layer under one schedule, and its seconds.
struct LayerResult {
  std::string_view schedule;
  Decision decision;
  double forward_s = 0, backward_s = 0;
  /// Forwards in an iteration; 2 if the backward repeats it (Recompute::full) and backward_s does not include that.
  int forwards = 1;
  /// From the first dispatch to the end of the last combine and expert_dw.
  double moe_forward_s = 0, moe_backward_s = 0;
  Bound bound;              // lower bound over all degrees
  Bound degree_bound;       // lower bound at the chosen degrees
  bool exact_order = true;  // false: of the orders of G and S, some were neither tried nor excluded
  double gap = 0;           // largest share by which another order may be faster
  MemoryEstimate memory;    // of one rank that trains the layer with this decision
  double total_s() const { return forwards * forward_s + backward_s; }
};

}  // namespace moe

// Structures that are compiled for replay once, and shared by the layers of a grid.

namespace moe::search {

struct CompiledStructure {
  explicit CompiledStructure(const StructureKey& key)
      : structure(build_structure(key)), replay(*structure), networks(key.networks) {
    for (const Lane& lane : structure->lanes) shares_a_network |= lane.kind == LaneKind::gradient;
  }
  /// Returns the seconds until the last task ends, under `contention`.
  double makespan(std::span<const double> seconds, const Contention& contention, std::vector<double>& ends) const {
    if (contention.none() && !shares_a_network) return replay.makespan(seconds, ends);
    return contended_replay(contention).makespan(seconds, ends);
  }
  const FluidReplay& contended_replay(const Contention& contention) const {
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

/// Compiled structures and scratch memory, shared by the replays of all schedules and layers.
struct ReplayStore {
  /// Returns a compiled structure from the cache, after building it if needed. The cache is cleared when it exceeds
  /// kMaxTasks tasks; callers share ownership of the results.
  std::shared_ptr<const CompiledStructure> get(const StructureKey& key);

  std::map<StructureKey, std::shared_ptr<const CompiledStructure>> structures;
  int64_t kept_tasks = 0;  // tasks of `structures`
  /// Key of `ordered`, the last structure with a searched lane order: each is needed only once or twice.
  StructureKey ordered_key;
  std::shared_ptr<const CompiledStructure> ordered;
  BoundShapes bound_shapes;
  std::vector<double> seconds, ends;  // scratch
};

/// Replays of one layer under one schedule, which must have no variants. All arguments must outlive the object.
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

  /// Returns whether the backward has gradients to send and two places for them.
  bool splits() const;
  /// Returns the longest paths of a backward. For all policies, the first slice is in the MoE part and the second
  /// beside the dense part; beside_dense and dense layers have no first slice.
  SplitPaths backward_paths(const BackwardOption& option);
  /// Returns the seconds of a backward that sends these bytes in its two places, even if a layer alone has fewer.
  double backward_with(const BackwardOption& option, LayerSlices slices);
  /// Returns the fastest split of a backward whose other decisions are given; if none beats `to_beat`, any split.
  Candidate best_split_of(const Decision& decision, double to_beat);
  /// Returns a lower bound on the seconds of a backward of this degree under contention, over all splits; 0: unknown.
  double min_contended(int degree);

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
