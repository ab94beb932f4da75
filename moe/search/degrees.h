#pragma once
// Exact degrees and gradient split of one layer: every integer r that a lower bound does not rule out is replayed.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "moe/cost/bounds.h"
#include "moe/cost/pricer.h"
#include "moe/plan/memory.h"
#include "moe/search/gradient_split.h"
#include "moe/search/structure_cache.h"

namespace moe {

struct LayerSlices;
struct PricedPass;

/// The largest degree that is tried; never more than T_rank.
inline constexpr int kMaxDegree = 64;
int largest_degree(const LayerPricer& pricer);
/// `fixed`, or where that is 0 all from 1 on; of a case that is padded to a multiple of rows, those that cut them into
/// equal chunks.
std::vector<int> tried_degrees(int fixed, const LayerPricer& pricer);

/// Decisions must not hang on the last bit of a sum: a later candidate wins by more than that, or not at all.
inline bool better(double candidate_s, double best_s) { return candidate_s < best_s * (1 - 1e-12); }

struct DegreeChoice {
  int forward = 0, backward = 0;           // 0: tuned
  int64_t micro_op_bytes = kMicroOpBytes;  // of schedules with micro-ops; 0: tuned
  int64_t min_chunk_bytes = 0;             // MoNTA's I_minimal: no smaller AlltoAll or AllGather chunk is tried
  /// Whether a rank's memory holds such a layer: experts are packed only as far as it does. Empty: it holds any.
  std::function<bool(const Case&, Flow)> fits = {};
};
/// Whether the chunks of such a degree are below min_chunk_bytes: of the AlltoAll or of the AllGather.
bool too_small(const Schedule& schedule, const LayerPricer& pricer, int degree, int64_t min_chunk_bytes);
/// One of every size of micro-op that is to be tried, with the degrees where the size decides them.
std::vector<DegreeChoice> sized_choices(const Schedule& schedule, const LayerPricer& pricer,
                                        const DegreeChoice& choice);
/// Degrees above T_rank as T_rank, since no chunk has less than a row; the pricer notes it.
DegreeChoice within_rows(DegreeChoice choice, const LayerPricer& pricer);

/// A degree of a layer's backward and the order on its intra lane.
struct BackwardOption {
  int degree = 1;
  LaneOrder order = {};
};

/// Gives a schedule with one degree for both phases the same choice for both. Throws BadInput for degrees that it does
/// not have.
void check_choice(const Schedule& schedule, DegreeChoice& choice);

/// One layer under one schedule.
struct LayerResult {
  std::string_view schedule;
  Decision decision;
  double forward_s = 0, backward_s = 0;
  double moe_forward_s = 0, moe_backward_s = 0;  // start of the first dispatch to the end of the last combine
  Bound bound;                                   // whatever the degrees
  Bound degree_bound;                            // of the degrees chosen
  bool exact_order = true;  // of G and S, where it is searched: false if not every one is ruled out
  double gap = 0;           // the share by which another order may be faster, at most
  MemoryEstimate memory;    // that training the layer as decided takes on a rank
  double total_s() const { return forward_s + backward_s; }
};

class LayerSearch {
 public:
  /// Decides what `choice` leaves open so that forward plus backward is least (FSMoE section 4; the split of section
  /// 5 for a single layer: how many bytes go into each of the places that the schedule has). With Rounding::lcm it
  /// weighs what each pair of degrees pads. Ties go to the smaller degree. A degree that the schedule does not have
  /// (ds-moe: only 1; tutel: one for both) is BadInput; a schedule that this case or profile does not allow is
  /// Unsupported.
  LayerResult tune(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice choice = {});
  double forward_seconds(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision) {
    return replay(schedule, pricer, decision, Phases::forward);
  }
  double backward_seconds(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision) {
    return replay(schedule, pricer, decision, Phases::backward);
  }
  /// A backward of this degree by the slices that lie on its paths, of a schedule with two places for gradients
  /// (adaptive, beside_dense: the first place is MoE part, `second` beside the dense part, in either).
  SplitPaths backward_paths(const Schedule& schedule, const LayerPricer& pricer, const BackwardOption& option);
  /// Seconds of a backward with these bytes in the two places that a model's layer has, whatever waits.
  double backward_with(const Schedule& schedule, const LayerPricer& pricer, const BackwardOption& option,
                       LayerSlices slices);
  /// Orders worth trying in a backward of this degree beside FSMoE's: the best without gradients, and with some.
  std::vector<LaneOrder> backward_orders(const Schedule& schedule, const LayerPricer& pricer, int degree);
  /// One phase at one degree, without gradients.
  PricedPass pass(const Schedule& schedule, const LayerPricer& pricer, int degree, Phase phase);
  /// A packing schedule's layer with 1, 2, 4 .. experts a device (Decision::packing), as far as Lina's rule goes and
  /// memory holds them.
  std::vector<LayerResult> tune_packings(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice choice);
  /// The times of a decision.
  LayerResult evaluate(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision);

 private:
  struct Candidate {
    Decision decision;
    double seconds;
  };
  struct Bounds {
    PhaseBound forward, backward;
  };
  const CompiledStructure& compiled(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision,
                                    Phases phases);
  const CompiledStructure& compiled(const StructureKey& key);
  double replay(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision, Phases phases);
  double makespan(const CompiledStructure& c, const LayerPricer& pricer);
  Bounds bounds(const Schedule& schedule, const LayerPricer& pricer);
  Candidate best_forward(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice);
  Candidate best_backward(const Schedule& schedule, const LayerPricer& pricer, int degree, double to_beat,
                          const DegreeChoice& choice);
  Candidate best_micro_ops(const Schedule& schedule, const LayerPricer& pricer, int degree, const DegreeChoice& choice);
  Candidate search(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice);
  Candidate search_together(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice);
  SplitPaths split_paths(const LayerPricer& pricer, const CompiledStructure& c, double to_beat);
  Candidate best_split_of(const Schedule& schedule, const LayerPricer& pricer, Decision decision, double to_beat);
  double moe_seconds(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision, Phases phases);
  LayerResult tune_variants(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice);
  LayerResult tune_packed(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice);
  LayerResult evaluate_chosen(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision);
  void improve_orders(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice,
                      LayerResult& best);
  void improve_backward(const Schedule& schedule, const LayerPricer& pricer, int degree, LayerResult& best);
  void contended_orders(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice,
                        LayerResult& best);
  LayerResult tune_one(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice);
  double least_of_degrees(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice);
  LayerResult tune_padded(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice);

  StructureCache cache_;
  StructureKey ordered_key_;  // a searched lane order is asked for once or twice: only the last is kept
  std::unique_ptr<CompiledStructure> ordered_;
  std::map<std::pair<StructureKey, Phase>, BoundShape> bound_shapes_;
  std::vector<double> seconds_, ends_;  // scratch
};

}  // namespace moe
