#pragma once
// Finds the exact degrees and gradient split of one layer: every integer r that a lower bound does not rule out is
// replayed.
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "moe/plan/memory.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/layer_replay.h"

namespace moe {

/// Degrees go up to T_rank, a row a chunk, and no further than this: a plan has some ten tasks a chunk, and a search
/// that no bound ends would replay the plans of all degrees before it. Results that this limit may have kept from a
/// better one say so.
inline constexpr int kMaxDegree = 1024;
/// The same limit with Rounding::lcm, where every pair of degrees has rows of its own.
inline constexpr int kMaxPaddingDegree = 64;
/// Begins the note on a degree that is cut to T_rank.
int degree_limit(const LayerCase& shape);
/// Returns the largest degree that is tried: T_rank, within the limit.
int largest_degree(const LayerPricer& pricer);
/// Returns whether neither `degree` nor any larger one takes less than `best_s`, where `from(degree)` is what all these
/// take at least. Asks at every eighth degree: most searches end at the first or second.
template <class From>
bool none_from(int degree, double best_s, From from) {
  return degree % 8 == 0 && !search::better(from(degree), best_s);
}
/// Returns `fixed`, or where that is 0 all degrees from 1 on; of a case that is padded to a multiple of rows, those
/// that cut them into equal chunks.
std::vector<int> tried_degrees(int fixed, const LayerPricer& pricer);

struct DegreeChoice {
  int forward = 0, backward = 0;           // 0: tuned
  int64_t micro_op_bytes = kMicroOpBytes;  // of schedules with micro-ops; 0: tuned
  int64_t min_chunk_bytes = 0;             // MoNTA's I_minimal: no smaller AlltoAll or AllGather chunk is tried
  int packing = 0;                         // of schedules that pack experts: Decision's; 0: tuned
  bool takes_rivals = true;                // `wave` may take the plan of another schedule
  /// Seconds of the plans of schedules that this choice was made for before: `wave` tunes none again that is no faster.
  std::map<const Schedule*, double> known_s = {};
  /// Returns whether a rank's memory holds such a layer: experts are packed only as far as it does. Empty: it holds
  /// any.
  std::function<bool(const LayerCase&, Flow)> fits = {};
  /// Returns whether a rank's memory holds a model's plan that needs this. Empty: it holds any.
  std::function<bool(const MemoryRequest&)> holds = {};
};
/// Returns whether a degree's chunks of the AlltoAll or of the AllGather are below min_chunk_bytes.
bool too_small(const Schedule& schedule, const LayerPricer& pricer, int degree, int64_t min_chunk_bytes);
/// Returns one choice for every size of micro-op that is to be tried, with the degrees where the size decides them.
std::vector<DegreeChoice> sized_choices(const Schedule& schedule, const LayerPricer& pricer,
                                        const DegreeChoice& choice);
/// Returns the choice with degrees above T_rank as T_rank, since no chunk has less than a row; the pricer notes it.
DegreeChoice within_rows(DegreeChoice choice, const LayerPricer& pricer);

/// Gives a schedule with one degree for both phases the same choice for both. Throws BadInput for degrees that it does
/// not have.
void check_choice(const Schedule& schedule, DegreeChoice& choice);

/// Decides what `choice` leaves open so that forward plus backward is least (FSMoE section 4; the split of section 5
/// for a single layer: how many bytes go into each of the places that the schedule has), and the order of lanes where
/// the schedule has it searched. With Rounding::lcm it weighs what each pair of degrees pads. Ties go to the smaller
/// degree.
LayerResult tune_degrees(search::LayerReplay layer, const DegreeChoice& choice);

// Keeps decisions within the memory that a rank of a cluster has.

/// Returns the choice among those layers that fit `capacity` bytes of a rank; none: whatever is chosen fits.
inline DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity) {
  if (capacity)
    choice.fits = [capacity](const LayerCase& c, Flow flow) { return !misfit(layer_memory(c, flow), *capacity); };
  return choice;
}

/// Returns the choice among those layers, and plans, of which a rank's memory holds a whole model.
inline DegreeChoice held(DegreeChoice choice, std::function<bool(const MemoryRequest&)> holds,
                         const ModelShape& model) {
  choice.fits = [holds, model](const LayerCase& c, Flow flow) { return holds(memory_request(model, c, flow)); };
  choice.holds = std::move(holds);
  return choice;
}

/// Likewise, where a rank has `capacity` bytes.
inline DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity, const ModelShape& model) {
  if (!capacity) return choice;
  const auto holds = [capacity](const MemoryRequest& request) { return !misfit(estimate_memory(request), *capacity); };
  return held(std::move(choice), holds, model);
}

}  // namespace moe
