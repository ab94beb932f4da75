#pragma once
// The two stages of a gate, whatever measures its pairs: programs, recorded launches, or a model of noise.
#include <functional>
#include <vector>

#include "regress/rule.h"

namespace moe::regress {

/// Measures one more pair of the wanted cases; `pair` counts over both stages. A case that could not be measured is
/// NaN; cases that are not wanted are not looked at.
using MeasurePair = std::function<std::vector<Pair>(int pair, const std::vector<bool>& wanted)>;

struct GateOutcome {
  std::vector<Evidence> evidence;  // of each case
  std::vector<Judged> judged;
  int pairs = 0;  // that were measured, of any case
};

/// Is told before the second stage how many pairs it takes, of which cases.
using TellSecond = std::function<void(int pairs, const std::vector<bool>& suspects)>;

/// Measures the first pairs of all cases, then fresh ones of the suspects, and judges. Without suspects it ends after
/// the first stage.
GateOutcome run_gate(size_t cases, const Rule& rule, const MeasurePair& measure, const TellSecond& tell = {});

}  // namespace moe::regress
