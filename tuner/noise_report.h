#pragma once
// Plans replayed on all ranks with jitter, stragglers and uneven routing.
#include <optional>
#include <string>
#include <vector>

#include "moe/cost/rank_replay.h"
#include "tuner/results_json.h"

namespace moe {

struct NoiseFlags {
  double jitter = 0;                    // coefficient of variation of every task, lognormal
  std::vector<std::string> stragglers;  // "RANK:FACTOR"
  std::optional<double> zipf;           // experts' popularity by Zipf's law with this exponent; dropless layers alone
  int samples = 100;
  uint64_t seed = 1;
  bool any() const { return jitter > 0 || !stragglers.empty() || zipf.has_value(); }
};

/// The noise that the flags ask for. Throws BadInput naming the flag.
RankNoise noise_of(const NoiseFlags& flags, const Case& shape);

struct NoiseRow {
  std::string schedule;
  double even_s = 0;  // without noise
  RankOutcome outcome;
};
std::string noise_table(const std::vector<NoiseRow>& rows);
Json to_json(const NoiseRow& row);

}  // namespace moe
