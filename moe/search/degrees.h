#pragma once
// Exact degrees and gradient split of one layer: every integer r is replayed, so nothing is missed.
#include <set>
#include <string>
#include <vector>

#include "moe/cost/bounds.h"
#include "moe/cost/pricer.h"
#include "moe/search/gradient_split.h"
#include "moe/search/structure_cache.h"

namespace moe {

/// The largest degree that is tried; never more than T_rank.
inline constexpr int kMaxDegree = 64;

struct DegreeChoice {
  int forward = 0, backward = 0;  // 0: tuned
};

/// One layer under one schedule.
struct LayerResult {
  std::string_view schedule;
  Decision decision;
  double forward_s = 0, backward_s = 0;
  double moe_forward_s = 0, moe_backward_s = 0;  // start of the first dispatch to the end of the last combine
  Bound bound;
  double total_s() const { return forward_s + backward_s; }
};

class LayerSearch {
 public:
  /// Decides what `choice` leaves open so that forward plus backward is least (FSMoE section 4; the split of section
  /// 5 for a single layer: how many bytes go into each of the places that the schedule has). Ties go to the smaller
  /// degree. A degree that the schedule does not have (ds-moe: only 1; tutel: one for both) is BadInput.
  LayerResult tune(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice choice = {});
  /// The times of a decision.
  LayerResult evaluate(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision);

 private:
  struct Candidate {
    Decision decision;
    double seconds;
  };
  const CompiledStructure& compiled(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision,
                                    Phases phases);
  double replay(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision, Phases phases);
  Candidate best_backward(const Schedule& schedule, const LayerPricer& pricer, int degree, double to_beat);
  SplitPaths split_paths(const Schedule& schedule, const LayerPricer& pricer, int degree, double to_beat);
  double moe_seconds(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision, Phases phases);

  StructureCache cache_;
  std::vector<double> seconds_, ends_;  // scratch
};

}  // namespace moe
