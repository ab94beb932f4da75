#pragma once
// The exact search for the degrees and the gradient split of one layer: it replays every integer degree that no lower
// bound excludes.
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "moe/plan/memory.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/layer_replay.h"

namespace moe {

/// Limit for degrees, which otherwise go up to T_rank, one row per chunk. Without it, a search that no bound ends would
/// replay all degrees, with some ten tasks per chunk. Results that may be worse because of the limit have a note.
inline constexpr int kMaxDegree = 1024;
/// Limit for degrees under Rounding::lcm, where every pair of degrees has its own number of rows.
inline constexpr int kMaxPaddingDegree = 64;
/// Returns the limit of degrees for a layer.
int degree_limit(const LayerCase& shape);
/// Returns the largest degree that is tried: T_rank, but at most the limit.
int largest_degree(const LayerPricer& pricer);
/// Returns whether neither `degree` nor any larger degree can be faster than `best_s`; false may also mean that this is
/// not known. `from(degree)`: a lower bound for all of them, evaluated only at every eighth degree to save time.
template <class From>
bool no_faster_degree_from(int degree, double best_s, From from) {
  return degree % 8 == 0 && !search::is_better(from(degree), best_s);
}
/// Returns the degrees to try: `fixed` or, if it is 0, all from 1 on. If the case's rows are padded to a multiple, only
/// degrees that cut them into equal chunks are returned.
std::vector<int> tried_degrees(int fixed, const LayerPricer& pricer);

struct DegreeChoice {
  int forward = 0, backward = 0;           // 0: tuned
  int64_t micro_op_bytes = kMicroOpBytes;  // for schedules with micro-ops; 0: tuned
  int64_t min_chunk_bytes = 0;             // MoNTA's I_minimal, lower limit for chunks of AlltoAll and AllGather
  int packing = 0;                         // Decision::packing, for schedules that pack experts; 0: tuned
  bool considers_rivals = true;            // `wave` may use the plan of another schedule
  /// Seconds of other schedules' plans for the same choice: `wave` tunes these schedules again only if they are faster.
  std::map<const Schedule*, double> known_s = {};
  /// Returns whether a rank has enough memory for such a layer; it limits the packing of experts. Empty: always.
  std::function<bool(const LayerCase&, Flow)> fits = {};
  /// Returns whether a rank has enough memory for a model's plan with this request. Empty: always.
  std::function<bool(const MemoryRequest&)> fits_memory = {};
};
/// Returns whether a degree makes chunks of the AlltoAll or the AllGather smaller than min_chunk_bytes.
bool too_small(const Schedule& schedule, const LayerPricer& pricer, int degree, int64_t min_chunk_bytes);
/// Returns one choice for each size of micro-ops to try, with the degrees set if the size determines them.
std::vector<DegreeChoice> sized_choices(const Schedule& schedule, const LayerPricer& pricer,
                                        const DegreeChoice& choice);
/// Returns the choice with degrees limited to T_rank, because a chunk has at least one row. Adds a note to the pricer
/// if a degree was reduced.
DegreeChoice within_rows(DegreeChoice choice, const LayerPricer& pricer);

/// If the schedule has one degree for both phases and only one is given, sets the other. Throws BadInput for degrees
/// that the schedule does not allow.
void check_choice(const Schedule& schedule, DegreeChoice& choice);

/// Decides everything that `choice` leaves open so that forward plus backward take the least time: degrees (FSMoE
/// section 4), the bytes of gradients in each of the schedule's places (section 5 for a single layer), and the order of
/// lanes if the schedule's order is searched. With Rounding::lcm, the padding of each pair of degrees counts. Ties go
/// to the smaller degree.
LayerResult tune_degrees(search::LayerReplay layer, const DegreeChoice& choice);

// Restriction of decisions to those that fit into a rank's memory.

/// Returns the choice restricted to layers that fit into `capacity` bytes of a rank; without a value, unrestricted.
inline DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity) {
  if (capacity)
    choice.fits = [capacity](const LayerCase& c, Flow flow) {
      return !memory_refusal(layer_memory(c, flow), *capacity);
    };
  return choice;
}

/// Returns the choice restricted to layers and plans of a whole model for which `holds` is true.
inline DegreeChoice restrict_to_memory(DegreeChoice choice, std::function<bool(const MemoryRequest&)> holds,
                                       const ModelShape& model) {
  choice.fits = [holds, model](const LayerCase& c, Flow flow) { return holds(memory_request(model, c, flow)); };
  choice.fits_memory = std::move(holds);
  return choice;
}

/// Returns the choice restricted to plans of a whole model that fit into `capacity` bytes of a rank.
inline DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity, const ModelShape& model) {
  if (!capacity) return choice;
  const auto holds = [capacity](const MemoryRequest& request) {
    return !memory_refusal(estimate_memory(request), *capacity);
  };
  return restrict_to_memory(std::move(choice), holds, model);
}

}  // namespace moe
