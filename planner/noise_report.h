#pragma once
// Plans replayed on all ranks with jitter, stragglers and uneven routing.
#include <optional>
#include <string>
#include <vector>

#include "moe/base/json.h"
#include "moe/cost/pricer.h"
#include "moe/cost/rank_replay.h"

namespace moe::planner {

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

}  // namespace moe::planner
