#pragma once
// What FSMoE's own strategies lose against the exact search, and what each costs in time.
#include <string>
#include <vector>

#include "moe/base/json.h"
#include "moe/search/strategies.h"
#include "verbs/sweep.h"

namespace moe::tuner {

struct StrategyRow {
  std::string_view strategy;
  int layers = 0, slower = 0;                // slower than exact by more than 0.01 %
  double mean_regret = 0, worst_regret = 0;  // share of the exact search's forward + backward
  double seconds_a_layer = 0;                // of search, on this machine
};

/// Returns each strategy on `layers` layers spread over the grid's supported rows, under schedule fsmoe.
std::vector<StrategyRow> compare_strategies(const verbs::SweepRequest& request,
                                            const std::vector<verbs::SweepRow>& rows, int layers);
std::string strategy_table(const std::vector<StrategyRow>& rows);
Json to_json(const std::vector<StrategyRow>& rows);

}  // namespace moe::tuner
