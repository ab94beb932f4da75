#include "tuner/sweep_report.h"

#include <algorithm>
#include <chrono>

#include "commands/shared/printed.h"
#include "moe/base/table.h"
#include "moe/base/units.h"

namespace moe::tuner {
namespace {

std::string times(double speedup) { return speedup > 0 ? fmt::format("{:.3f}x", speedup) : "-"; }

constexpr size_t kShownNotes = 3;  // number of notes shown for one label

// Adds notes on what replaced prices that the profile lacks.
void add_notes(const std::vector<commands::SweepRow>& rows, std::vector<std::string>& lines) {
  for (const auto& [label, noted] : commands::noted_layers(rows)) {
    lines.push_back(fmt::format("prices of {}: {}", counted(noted.layers, "layer"), label));
    size_t shown = 0;
    for (const std::string& about : noted.about)
      if (shown++ < kShownNotes) lines.push_back("  " + about);
    if (shown > kShownNotes) lines.push_back(fmt::format("  and {} more", shown - kShownNotes));
  }
}

Table summary_table(const std::vector<commands::ScheduleSummary>& summaries, const commands::SweepRequest& request) {
  Table table({"schedule", "layers", "over tutel", commands::paper_column_header(request.grid), "of bound",
               "of own bound", "r_f", "r_b", "r_f != r_b"});
  for (const commands::ScheduleSummary& s : summaries)
    table.add({std::string(s.schedule), fmt::format("{}", s.layers), simulated_speedup(s),
               times(commands::printed_speedup(request.grid, request.profile, request.degrees, s.schedule)),
               percent(s.bound_ratio), percent(s.own_bound_ratio), commands::degree_range(s.degrees_forward),
               commands::degree_range(s.degrees_backward), fmt::format("{}", s.differing_degrees)});
  return table;
}

// Returns the notes below the table.
std::vector<std::string> summary_lines(const std::vector<commands::SweepRow>& rows,
                                       const std::vector<commands::ScheduleSummary>& summaries) {
  std::vector<std::string> lines;
  if (std::string fastest = fastest_text(summaries); !fastest.empty()) lines.push_back(std::move(fastest));
  std::map<std::string, int> reasons;
  for (const commands::SweepRow& row : rows) {
    if (row.refusal)
      ++reasons[row.refusal->reason];
    else
      for (const auto& [schedule, refusal] : row.refusals) ++reasons[fmt::format("{}: {}", schedule, refusal.reason)];
  }
  for (const auto& [reason, count] : reasons)
    lines.push_back(fmt::format("unsupported, {}: {}", counted(count, "layer"), reason));
  add_notes(rows, lines);
  return lines;
}

}  // namespace

std::string fastest_text(const std::vector<commands::ScheduleSummary>& summaries) {
  constexpr double kShown = 5e-4;  // closer means print the same; the first one of them is named
  double best = 0;
  int most = 0;
  for (const commands::ScheduleSummary& s : summaries) {
    best = std::max(best, s.speedup);
    most = std::max(most, s.compared);
  }
  for (const commands::ScheduleSummary& s : summaries)
    if (s.layers > 0 && s.compared < most) return "";
  for (const commands::ScheduleSummary& s : summaries)
    if (best > 0 && s.speedup >= best - kShown)
      return fmt::format("fastest in the mean: {}, {} over tutel, simulated", s.schedule, times(s.speedup));
  return "";
}

std::string simulated_speedup(const commands::ScheduleSummary& summary) {
  const bool fewer = summary.compared > 0 && summary.compared < summary.layers;
  return times(summary.speedup) + (fewer ? fmt::format(" ({})", summary.compared) : "");
}

std::string sweep_report(const std::vector<commands::SweepRow>& rows, const commands::SweepRequest& request) {
  const auto summaries = commands::summarise(rows, request.schedules);
  std::string text = summary_table(summaries, request).text();
  for (const std::string& line : summary_lines(rows, summaries)) text += fmt::format("  {}\n", line);
  return text;
}

AnswerPart sweep_part(const std::vector<commands::SweepRow>& rows, const commands::SweepRequest& request) {
  const auto summaries = commands::summarise(rows, request.schedules);
  return {"SUMMARY", summary_lines(rows, summaries), summary_table(summaries, request).rows()};
}

namespace {

// Returns `layers` rows, spread evenly over the planned rows.
std::vector<const commands::SweepRow*> sample(const std::vector<commands::SweepRow>& rows, int layers) {
  std::vector<const commands::SweepRow*> supported, chosen;
  for (const commands::SweepRow& row : rows)
    if (row.is_planned()) supported.push_back(&row);
  const size_t count = std::min(supported.size(), static_cast<size_t>(layers));
  for (size_t i = 0; i < count; ++i) chosen.push_back(supported[(2 * i + 1) * supported.size() / (2 * count)]);
  return chosen;
}

}  // namespace

std::vector<StrategyRow> compare_strategies(const commands::SweepRequest& request,
                                            const std::vector<commands::SweepRow>& rows, int layers) {
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
      if (report.size() == 1) exact[i] = seconds;                   // the first strategy is the exact search
      const double regret = std::max(0.0, seconds / exact[i] - 1);  // rounding of the sum can make it negative
      row.mean_regret += regret / static_cast<double>(chosen.size());
      row.worst_regret = std::max(row.worst_regret, regret);
      row.slower += regret > 1e-4;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    row.seconds_per_layer = took.count() / static_cast<double>(chosen.size());
  }
  return report;
}

std::string strategy_table(const std::vector<StrategyRow>& rows) {
  Table table({"strategy (fsmoe)", "layers", "regret mean", "worst", "slower", "search a layer"});
  for (const StrategyRow& row : rows)
    table.add({std::string(row.strategy), fmt::format("{}", row.layers), percent(row.mean_regret, 3),
               percent(row.worst_regret, 3), fmt::format("{}", row.slower), human_seconds(row.seconds_per_layer)});
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
                    {"search_s_a_layer", row.seconds_per_layer}});
  return json;
}

}  // namespace moe::tuner
