#pragma once
// The plans of a grid's layers, as a table of speedups.
#include <string>
#include <vector>

#include "commands/shared/sweep.h"
#include "moe/base/json.h"
#include "moe/search/strategies.h"

namespace moe::tuner {

/// Returns a table of mean speedups over tutel, the paper's speedups, degrees and bounds, with notes below it.
std::string sweep_report(const std::vector<commands::SweepRow>& rows, const commands::SweepRequest& request);

/// Returns the same table as a part of an answer, as records keep it.
AnswerPart sweep_part(const std::vector<commands::SweepRow>& rows, const commands::SweepRequest& request);

/// Returns one line that names the schedule with the largest mean speedup. Empty if no schedule was compared with
/// tutel, or if the means cover different layers.
std::string fastest_text(const std::vector<commands::ScheduleSummary>& summaries);
/// Returns "1.220x", followed by the number of layers in the mean if not all layers are in it; "-" without a mean.
std::string simulated_speedup(const commands::ScheduleSummary& summary);

/// The regret of one of FSMoE's search strategies against the exact search, and the time that it takes.
struct StrategyRow {
  std::string_view strategy;
  int layers = 0, slower = 0;  // number of layers, and of layers over 0.01 % slower than by the exact search
  double mean_regret = 0, worst_regret = 0;  // regret as a share of the exact search's forward + backward
  double seconds_per_layer = 0;              // seconds that the search takes on this machine
};

/// Compares all strategies on `layers` layers spread over the grid's supported rows, under schedule fsmoe.
std::vector<StrategyRow> compare_strategies(const commands::SweepRequest& request,
                                            const std::vector<commands::SweepRow>& rows, int layers);
std::string strategy_table(const std::vector<StrategyRow>& rows);
Json to_json(const std::vector<StrategyRow>& rows);

}  // namespace moe::tuner
