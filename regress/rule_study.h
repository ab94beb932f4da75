#pragma once
// The gate's rule beside three that others use, over many gates of made-up machines.
#include <string>
#include <vector>

#include "regress/noisy_launches.h"
#include "regress/rule.h"

namespace moe::regress {

/// ours     pairs, two stages (rule.h)
/// rank_sum Mann and Whitney's test at 5 %, on arms one after the other
/// ratio    of the arms' medians, above 1.05
/// welch    Welch's t at 5 %
enum class GateRule : uint8_t { ours, rank_sum, ratio, welch };
inline constexpr int kGateRules = 4;
std::string_view name_of(GateRule rule);

struct StudyRow {
  std::string_view noise;
  GateRule rule = GateRule::ours;
  double slowdown = 0;           // of one case of each gate; 0: of none
  int64_t gates = 0, found = 0;  // with a SLOW: of the slowed case, where there is one
  double pairs = 0;              // a gate, in the mean
};

/// Judges gates on every made-up machine by every rule. `slowdowns`: shares. The other rules have kBlockedLaunches
/// launches of each arm.
inline constexpr int kBlockedLaunches = 12;
std::vector<StudyRow> study_rules(const Rule& rule, size_t cases, int64_t gates, const std::vector<double>& slowdowns,
                                  uint64_t seed);

}  // namespace moe::regress
