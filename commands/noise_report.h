#pragma once
// Replays of plans on all ranks with jitter, stragglers and uneven routing.
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
  std::optional<double> jitter;         // coefficient of variation of all tasks, lognormal; 0: all ranks without jitter
  std::vector<std::string> stragglers;  // "RANK:FACTOR"
  std::optional<double> zipf;           // exponent of Zipf's law for experts' popularity; only for dropless layers
  std::optional<int> samples;           // none: kNoiseSamples; without jitter all samples are equal
  std::optional<uint64_t> seed;         // seed of jitter and popularity; none: 1
  bool any() const { return jitter.has_value() || !stragglers.empty() || zipf.has_value(); }
};
inline constexpr int kNoiseSamples = 100;

/// Throws BadInput naming a flag that is meaningless without others, or a value that cannot be read.
void check_flags(const NoiseFlags& flags);

/// Returns the noise that the flags request, on `stages` pipeline stages of that shape. Each of the `layers` layers has
/// popular experts of its own. Throws BadInput naming the flag.
RankNoise noise_of(const NoiseFlags& flags, const LayerCase& shape, int stages = 1, int layers = 1);

struct NoiseRow {
  std::string schedule;
  double even_s = 0;  // seconds without noise
  RankOutcome outcome;
};
/// Replays the plan of a layer or a model on all its ranks. `pricer`: the pricer of its layer.
NoiseRow replay_with_noise(const NoiseFlags& flags, const LayerPricer& pricer, const Plan& plan, double even_s);
std::string noise_text(const std::vector<NoiseRow>& rows);
Json to_json(const NoiseRow& row);

// The records of `simulate`: a layer's timeline under a schedule, and its time at each degree.

/// Returns the tasks of a plan with their times, in issue order.
std::vector<TaskTimes> task_times(const Plan& plan, const Timeline& timeline);

/// Returns the record of one layer under one schedule with its decision, key "simulate/SCHEDULE". prediction:
/// forward_s, backward_s, moe_forward_s, moe_backward_s, total_s, gar_in_moe_bytes, and KIND_busy_s for each kind of
/// lane; bound_s holds for all degrees.
CaseRecord timeline_record(const LayerResult& result, const Plan& plan, const Timeline& timeline,
                           const Fields& parameters);

/// Returns the records of the layer with both degrees 1, 2, .. up to at most 64, as far as the search tries them, with
/// the gradient split tuned for each; a schedule that only has degree 1 has one. Key "degrees/SCHEDULE/R". prediction:
/// forward_s and backward_s, and for each phase degree_bound_PHASE_s (moe/simulator/bounds.h: with chunks of this
/// degree) and free_bound_PHASE_s (with any degree).
std::vector<CaseRecord> degree_records(const Schedule& schedule, const LayerPricer& pricer, const Fields& parameters);

}  // namespace moe::commands
