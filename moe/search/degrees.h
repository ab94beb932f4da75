#pragma once
// Finds the exact degrees and gradient split of one layer: every integer r that no lower bound excludes is
// replayed.
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "moe/plan/memory.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/layer_replay.h"

namespace moe {

/// The largest degree: degrees go up to T_rank, one row per chunk, but not beyond this limit, because a plan has some
/// ten tasks per chunk and a search that no bound ends would replay all degrees. Results that may be worse because of
/// this limit have a note.
inline constexpr int kMaxDegree = 1024;
/// The same limit for Rounding::lcm, where every pair of degrees has its own number of rows.
inline constexpr int kMaxPaddingDegree = 64;
/// Returns the limit of degrees for a layer.
int degree_limit(const LayerCase& shape);
/// Returns the largest degree that is tried: T_rank, but at most the limit.
int largest_degree(const LayerPricer& pricer);
/// Returns whether neither `degree` nor any larger one takes less than `best_s`, where `from(degree)` is a lower bound
/// for all of these. Evaluates every eighth degree only, because most searches end at the first or second.
template <class From>
bool none_from(int degree, double best_s, From from) {
  return degree % 8 == 0 && !search::better(from(degree), best_s);
}
/// Returns `fixed` or, if it is 0, all degrees from 1 on; if the case's rows are padded to a multiple, only the degrees
/// that cut them into equal chunks.
std::vector<int> tried_degrees(int fixed, const LayerPricer& pricer);

struct DegreeChoice {
  int forward = 0, backward = 0;           // 0: tuned
  int64_t micro_op_bytes = kMicroOpBytes;  // for schedules with micro-ops; 0: tuned
  int64_t min_chunk_bytes = 0;             // MoNTA's I_minimal: no smaller AlltoAll or AllGather chunk is tried
  int packing = 0;                         // of schedules that pack experts: Decision's; 0: tuned
  bool takes_rivals = true;                // `wave` may take the plan of another schedule
  /// Seconds of the plans of schedules that this choice was made for before: `wave` tunes none again that is no faster.
  std::map<const Schedule*, double> known_s = {};
  /// Returns whether a rank's memory is enough for such a layer; experts are packed only as far as it is. Empty: always
  /// true.
  std::function<bool(const LayerCase&, Flow)> fits = {};
  /// Returns whether a rank's memory is enough for a model's plan with this request. Empty: always true.
  std::function<bool(const MemoryRequest&)> holds = {};
};
/// Returns whether a degree's chunks of the AlltoAll or the AllGather are smaller than min_chunk_bytes.
bool too_small(const Schedule& schedule, const LayerPricer& pricer, int degree, int64_t min_chunk_bytes);
/// Returns a choice for every size of micro-op to try, including the degrees if the size decides them.
std::vector<DegreeChoice> sized_choices(const Schedule& schedule, const LayerPricer& pricer,
                                        const DegreeChoice& choice);
/// Returns the choice with degrees limited to T_rank, because a chunk has at least one row; the pricer notes a change.
DegreeChoice within_rows(DegreeChoice choice, const LayerPricer& pricer);

/// Makes both degrees equal for a schedule with one degree for both phases. Throws BadInput for degrees that the
/// schedule does not have.
void check_choice(const Schedule& schedule, DegreeChoice& choice);

/// Decides everything that `choice` leaves open such that forward plus backward take the least time (FSMoE section 4;
/// section 5's split for a single layer: the bytes in each of the schedule's places), including the order of lanes if
/// the schedule has it searched. With Rounding::lcm, the padding of each pair of degrees is included. Ties go to the
/// smaller degree.
LayerResult tune_degrees(search::LayerReplay layer, const DegreeChoice& choice);

// Restricts decisions to the memory of a cluster's ranks.

/// Returns the choice among layers that fit into `capacity` bytes of a rank; none: no restriction.
inline DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity) {
  if (capacity)
    choice.fits = [capacity](const LayerCase& c, Flow flow) { return !misfit(layer_memory(c, flow), *capacity); };
  return choice;
}

/// Returns the choice among the layers and plans of a whole model that fit into a rank's memory.
inline DegreeChoice held(DegreeChoice choice, std::function<bool(const MemoryRequest&)> holds,
                         const ModelShape& model) {
  choice.fits = [holds, model](const LayerCase& c, Flow flow) { return holds(memory_request(model, c, flow)); };
  choice.holds = std::move(holds);
  return choice;
}

/// The same for a rank with `capacity` bytes.
inline DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity, const ModelShape& model) {
  if (!capacity) return choice;
  const auto holds = [capacity](const MemoryRequest& request) { return !misfit(estimate_memory(request), *capacity); };
  return held(std::move(choice), holds, model);
}

}  // namespace moe
