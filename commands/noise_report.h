#pragma once
// Plans replayed on all ranks with jitter, stragglers and uneven routing.
#include <optional>
#include <string>
#include <vector>

#include "moe/base/json.h"
#include "moe/prices/pricer.h"
#include "moe/record/record.h"
#include "moe/search/degrees.h"
#include "moe/simulator/rank_replay.h"

namespace moe::commands {

struct NoiseFlags {
  std::optional<double> jitter;         // coefficient of variation of every task, lognormal; 0: all ranks without any
  std::vector<std::string> stragglers;  // "RANK:FACTOR"
  std::optional<double> zipf;           // experts' popularity by Zipf's law with this exponent; dropless layers alone
  std::optional<int> samples;           // none: kNoiseSamples; without jitter all are alike
  std::optional<uint64_t> seed;         // of jitter and popularity; none: 1
  bool any() const { return jitter.has_value() || !stragglers.empty() || zipf.has_value(); }
};
inline constexpr int kNoiseSamples = 100;

/// Throws BadInput naming a flag that the others leave without meaning, or what can't be read.
void check_flags(const NoiseFlags& flags);

/// Returns the noise that the flags ask for, on so many pipeline stages of that shape; each of the layers has popular
/// experts of its own. Throws BadInput naming the flag.
RankNoise noise_of(const NoiseFlags& flags, const LayerCase& shape, int stages = 1, int layers = 1);

struct NoiseRow {
  std::string schedule;
  double even_s = 0;  // without noise
  RankOutcome outcome;
};
/// Replays the plan of a layer or a model on all its ranks. `pricer`: of its layer.
NoiseRow with_noise(const NoiseFlags& flags, const LayerPricer& pricer, const Plan& plan, double even_s);
std::string noise_text(const std::vector<NoiseRow>& rows);
Json to_json(const NoiseRow& row);

// What `simulate` leaves behind: a layer's timeline under a schedule, and its time at each degree, as records.

/// Returns the tasks of a plan and when they run, in issue order.
std::vector<TaskTimes> task_times(const Plan& plan, const Timeline& timeline);

/// Returns the record of one layer under one schedule as it was decided, key "simulate/SCHEDULE". prediction:
/// forward_s, backward_s, moe_forward_s, moe_backward_s, total_s, gar_in_moe_bytes, and by lane KIND_busy_s; bound_s is
/// free of degrees.
CaseRecord timeline_record(const LayerResult& result, const Plan& plan, const Timeline& timeline,
                           const Fields& parameters);

/// Returns the records of the layer with both degrees 1, 2, .. up to 64 at most, as far as the search tries them, the
/// gradient split tuned for each; a schedule that knows only degree 1 has one. Key "degrees/SCHEDULE/R"; prediction:
/// forward_s and backward_s, of each phase degree_bound_PHASE_s (moe/simulator/bounds.h: of chunks of this degree) and
/// free_bound_PHASE_s (of any degree).
std::vector<CaseRecord> degree_records(const Schedule& schedule, const LayerPricer& pricer, const Fields& parameters);

}  // namespace moe::commands
