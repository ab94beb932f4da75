#pragma once
// Launches of equal programs that were recorded, and gates made of them: how often the rule is wrong on this machine.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "commands/regress/output_metric.h"
#include "commands/regress/rule.h"

namespace moe::regress {

/// What is done to the head's times of one case of a gate.
struct Injection {
  std::string_view name;
  double slowdown = 0;           // a share; 0: nothing is done
  bool one_rank = false;         // to one rank of each launch, not to all
  double share_of_launches = 1;  // 0.25: a slow mode that a quarter of the launches is in
};
const std::vector<Injection>& injections();

/// One pair of launches of every case; empty: the case has none in this round.
struct Round {
  std::vector<std::optional<CaseTimes>> base, head;
};

struct ResampledGates {
  int64_t gates = 0;
  int64_t any_slow = 0;  // gates with any SLOW
  int64_t found = 0;     // gates where the slowed case is
  int64_t unsure = 0;    // where it is ambiguous
};

/// Draws gates from blocks of neighbouring rounds, which keeps what drifts, with the programs' names drawn anew.
/// Without an injection equal programs are judged.
ResampledGates resample(const std::vector<Round>& rounds, const Rule& rule, const Injection& injection, int64_t gates,
                        uint64_t seed);

/// Returns how far one launch of a case deviates: the deviation of its pairs' log ratios over the root of 2.
double launch_deviation(const std::vector<Round>& rounds, size_t of_case);

/// Returns the log ratio that 99 % of resamples stay within: of each the largest mean of any case over so many pairs of
/// equal programs.
double floor_of(const std::vector<Round>& rounds, int pairs, int64_t samples, uint64_t seed);

}  // namespace moe::regress
