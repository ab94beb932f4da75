#include "tuner/strategy_report.h"

#include <algorithm>
#include <chrono>

#include "moe/base/table.h"
#include "moe/base/units.h"

namespace moe::tuner {
namespace {

// Returns rows spread evenly over those that could be tuned.
std::vector<const verbs::SweepRow*> sample(const std::vector<verbs::SweepRow>& rows, int layers) {
  std::vector<const verbs::SweepRow*> supported, chosen;
  for (const verbs::SweepRow& row : rows)
    if (row.status == CaseStatus::ok) supported.push_back(&row);
  const size_t count = std::min(supported.size(), static_cast<size_t>(layers));
  for (size_t i = 0; i < count; ++i) chosen.push_back(supported[(2 * i + 1) * supported.size() / (2 * count)]);
  return chosen;
}

}  // namespace

std::vector<StrategyRow> compare_strategies(const verbs::SweepRequest& request,
                                            const std::vector<verbs::SweepRow>& rows, int layers) {
  const Schedule& schedule = find_schedule("fsmoe");
  const auto chosen = sample(rows, layers);
  if (chosen.empty()) return {};
  LayerSearch search;
  std::vector<double> exact(chosen.size());
  std::vector<StrategyRow> report;
  for (const LayerStrategy& strategy : layer_strategies()) {
    StrategyRow& row = report.emplace_back();
    row.strategy = strategy.name;
    row.layers = static_cast<int>(chosen.size());
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < chosen.size(); ++i) {
      const LayerPricer pricer(request.profile, chosen[i]->shape, request.pricing);
      const double seconds = strategy.tune(search, schedule, pricer).total_s();
      if (report.size() == 1) exact[i] = seconds;                   // exact is the first
      const double regret = std::max(0.0, seconds / exact[i] - 1);  // below: the last bits of a sum
      row.mean_regret += regret / static_cast<double>(chosen.size());
      row.worst_regret = std::max(row.worst_regret, regret);
      row.slower += regret > 1e-4;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    row.seconds_a_layer = took.count() / static_cast<double>(chosen.size());
  }
  return report;
}

std::string strategy_table(const std::vector<StrategyRow>& rows) {
  Table table({"strategy (fsmoe)", "layers", "regret mean", "worst", "slower", "search a layer"});
  for (const StrategyRow& row : rows)
    table.add({std::string(row.strategy), fmt::format("{}", row.layers), percent(row.mean_regret, 3),
               percent(row.worst_regret, 3), fmt::format("{}", row.slower), human_seconds(row.seconds_a_layer)});
  return table.text();
}

Json to_json(const std::vector<StrategyRow>& rows) {
  Json json = Json::array();
  for (const StrategyRow& row : rows)
    json.push_back({{"strategy", row.strategy},
                    {"layers", row.layers},
                    {"mean_regret", row.mean_regret},
                    {"worst_regret", row.worst_regret},
                    {"slower", row.slower},
                    {"search_s_a_layer", row.seconds_a_layer}});
  return json;
}

}  // namespace moe::tuner
