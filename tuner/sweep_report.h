#pragma once
// A swept grid as a table.
#include <string>
#include <vector>

#include "commands/shared/sweep.h"
#include "moe/base/json.h"
#include "moe/search/strategies.h"

namespace moe::tuner {

/// Returns mean speedups over tutel beside the paper's, degrees, bounds, and notes on them.
std::string sweep_report(const std::vector<commands::SweepRow>& rows, const commands::SweepRequest& request);

/// Returns the same table as a part of an answer, as records keep it.
AnswerPart sweep_part(const std::vector<commands::SweepRow>& rows, const commands::SweepRequest& request);

/// Returns one line that names the schedule with the largest mean speedup. Empty if no schedule was compared with
/// tutel, or if schedules were compared over different layers.
std::string fastest_text(const std::vector<commands::ScheduleSummary>& summaries);
/// Returns "1.220x", plus the number of layers in the mean if the schedule has more; "-" if it has no mean.
std::string simulated_speedup(const commands::ScheduleSummary& summary);

/// The loss of FSMoE's own strategies against the exact search, and the time of each search.
struct StrategyRow {
  std::string_view strategy;
  int layers = 0, slower = 0;  // number of layers, and of those over 0.01 % slower than with the exact search
  double mean_regret = 0, worst_regret = 0;  // regret as a share of the exact search's forward + backward
  double seconds_per_layer = 0;              // seconds of search on this machine
};

/// Returns each strategy on `layers` layers spread over the grid's supported rows, under schedule fsmoe.
std::vector<StrategyRow> compare_strategies(const commands::SweepRequest& request,
                                            const std::vector<commands::SweepRow>& rows, int layers);
std::string strategy_table(const std::vector<StrategyRow>& rows);
Json to_json(const std::vector<StrategyRow>& rows);

}  // namespace moe::tuner
