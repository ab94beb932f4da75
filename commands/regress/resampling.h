#pragma once
// Estimates how often the gate's rule is wrong on a machine, by gates that are resampled from recorded launches of
// equal programs.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "commands/regress/output_metric.h"
#include "commands/regress/rule.h"

namespace moe::regress {

/// An artificial slowdown of the head in one case of a gate.
struct Injection {
  std::string_view name;
  double slowdown = 0;           // share by which times grow; 0: equal programs
  bool one_rank = false;         // slows one rank of each launch instead of all
  double share_of_launches = 1;  // share of the launches that are slowed; 0.25: a quarter
};
const std::vector<Injection>& injections();

/// One pair of launches: the times by case; none: the case was not measured in this round.
struct Round {
  std::vector<std::optional<CaseTimes>> base, head;
};

struct ResampledGates {
  int64_t gates = 0;
  int64_t any_slow = 0;  // gates in which any case is SLOW
  int64_t found = 0;     // gates in which the slowed case is SLOW
  int64_t unsure = 0;    // gates in which the slowed case is AMBG
};

/// Resamples gates from blocks of consecutive rounds, which preserves slow drift of the machine. Each round's two
/// launches are swapped with probability 1/2. With the injection "none" the programs are equal.
ResampledGates resample(const std::vector<Round>& rounds, const Rule& rule, const Injection& injection, int64_t gates,
                        uint64_t seed);

/// Returns the standard deviation of a launch's log seconds: that of the pairs' log ratios over the root of 2.
double launch_deviation(const std::vector<Round>& rounds, size_t of_case);

/// Returns the log ratio within which 99 % of resampled gates of equal programs stay. A gate's value is the largest of
/// its cases' trimmed means over `pairs` pairs.
double noise_floor_of(const std::vector<Round>& rounds, int pairs, int64_t samples, uint64_t seed);

}  // namespace moe::regress
