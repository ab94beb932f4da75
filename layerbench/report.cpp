#include "layerbench/report.h"

#include <algorithm>
#include <cmath>

#include "commands/shared/run/layer_records.h"
#include "commands/shared/run/run_report.h"
#include "layerbench/regret.h"
#include "moe/base/json.h"
#include "moe/base/statistics.h"
#include "moe/base/table.h"
#include "moe/base/units.h"
#include "moe/measure/layers/proxy.h"
#include "moe/record/pass_times.h"

namespace moe::layerbench {
namespace {

constexpr int kBehindMs = 4;  // index of the column for replayed passes

double summary(const CaseRecord& r, std::string_view name) { return r.summary.number(name, r.key); }
double prediction(const CaseRecord& r, std::string_view name) { return r.prediction.number(name, r.key); }
bool timed(const CaseRecord& r) { return r.summary.has("total_s"); }
bool predicted(const CaseRecord& r) { return r.prediction.has("total_s"); }
bool replayed(const CaseRecord& r) { return r.summary.has("replayed_s"); }
bool checked(const CaseRecord& r) { return r.summary.has("worst_error"); }
std::string ms(double seconds) { return fmt::format("{:.2f}", 1e3 * seconds); }
std::string degrees(const CaseRecord& r) { return fmt::format("{}/{}", r.degree_forward, r.degree_backward); }

std::string times_of(const std::vector<commands::ScheduleRun>& runs) {
  const bool graphs = std::ranges::any_of(runs, replayed, &commands::ScheduleRun::record);
  std::vector<std::string> header{"schedule", "r",      "model ms",        "ms",      "forward", "backward",
                                  "error",    "spread", "exposed comm ms", "overlap", "status"};
  if (graphs) header.insert(header.begin() + kBehindMs, "replayed ms");
  Table table(header);
  for (const commands::ScheduleRun& run : runs) {
    const CaseRecord& r = run.record;
    if (!timed(r)) continue;
    const double total = summary(r, "total_s");
    std::vector<std::string> row{
        r.schedule,
        degrees(r),
        predicted(r) ? ms(prediction(r, "total_s")) : "-",
        ms(total),
        ms(summary(r, "forward_s")),
        ms(summary(r, "backward_s")),
        predicted(r) ? fmt::format("{:+.2f} %", 100 * (commands::measured_over_predicted(r) - 1)) : "-",
        spread_text(summary(r, "least_total_s"), summary(r, "most_total_s"), total, median_interval(passes_s(r))),
        ms(summary(r, "exposed_s")),
        percent(summary(r, "overlap_efficiency"), 0),
        std::string(name_of(r.status))};
    if (graphs) row.insert(row.begin() + kBehindMs, replayed(r) ? ms(summary(r, "replayed_s")) : "-");
    table.add(std::move(row));
  }
  return "Time (medians over the passes of the slowest rank; r: degrees forward/backward)\n\n" + table.text() + '\n';
}

std::string checks_of(const std::vector<commands::ScheduleRun>& runs, bool emulated) {
  Table table({"schedule", "r", "dropped", "most/mean", "empty", "peak", "estimate", "off by", "in", "status"});
  for (const commands::ScheduleRun& run : runs)
    if (const CaseRecord& r = run.record; checked(r))
      table.add({r.schedule, degrees(r), percent(summary(r, "drop_rate")),
                 fmt::format("{:.2f}", summary(r, "imbalance")), percent(summary(r, "padding")),
                 human_bytes(summary(r, "peak_bytes")), human_bytes(prediction(r, "peak_bytes")),
                 fmt::format("{:.1e}", summary(r, "worst_error")), r.summary.text("worst_tensor", r.key),
                 std::string(name_of(r.status))});
  return "Routing (most/mean: load of an expert; empty: of the rows sent), memory of a rank, largest error against the "
         "reference\n" +
         std::string(emulated ? "Memory is of the layer that ran, a far smaller one than `memory` speaks of\n" : "") +
         '\n' + table.text() + '\n';
}

std::string text_of(const commands::LayerOutcome& outcome, const LayerbenchResults& results) {
  std::string text = fmt::format("{} on {}{}\n\n", outcome.layer, results.place,
                                 !results.emulated    ? ""
                                 : results.check_only ? fmt::format(" (emulated by {})", measure::proxy_ranks())
                                                      : fmt::format(" (emulated by {}, {})", measure::proxy_ranks(),
                                                                    commands::dilation_text(outcome.runs)));
  if (std::ranges::any_of(outcome.runs, timed, &commands::ScheduleRun::record)) text += times_of(outcome.runs);
  if (std::ranges::any_of(outcome.runs, checked, &commands::ScheduleRun::record))
    text += checks_of(outcome.runs, results.emulated);
  if (results.tasks) text += commands::tasks_text(outcome);
  return text + commands::reasons_text(outcome);
}

// Returns |measured / predicted - 1| for every sound run of a schedule on a layer.
std::vector<double> errors_of(const std::vector<commands::LayerOutcome>& outcomes) {
  std::vector<double> errors;
  for (const commands::LayerOutcome& outcome : outcomes)
    for (const commands::ScheduleRun& run : outcome.runs)
      if (const CaseRecord& r = run.record; r.status == CaseStatus::ok && timed(r) && predicted(r))
        errors.push_back(std::abs(commands::measured_over_predicted(r) - 1));
  return errors;
}

std::string summary_text(const LayerbenchResults& results) {
  Table table(
      {"schedule", "ok", "others", "over tutel", "predicted over tutel", "error", "worst", "exposed comm", "overlap"});
  for (const GridSummary& s : summarise(results.outcomes)) {
    const auto if_any = [](int n, const std::string& text) { return n > 0 ? text : "-"; };
    const bool times = s.ok > 0 && !results.check_only;
    table.add({s.schedule, fmt::format("{}", s.ok), fmt::format("{}", s.others),
               if_any(s.compared, fmt::format("{:.3f}", s.measured_speedup)),
               if_any(s.compared, fmt::format("{:.3f}", s.predicted_speedup)),
               if_any(times, percent(s.median_error, 2)), if_any(times, percent(s.worst_error, 2)),
               if_any(times, percent(s.exposed_share)), if_any(times, percent(s.overlap, 0))});
  }
  std::string text =
      fmt::format("{}: {}\n\n{}\n", results.grid, counted(results.outcomes.size(), "layer"), table.text());
  const std::vector<double> errors = errors_of(results.outcomes);
  if (!errors.empty())
    text += fmt::format("measured against predicted: {} off in the median of {} runs, {} at worst\n",
                        percent(median(errors), 2), errors.size(), percent(std::ranges::max(errors), 2));
  if (const auto regret = regret_of(results.outcomes))
    text += fmt::format("choice: regret of the predicted fastest over the fastest, {} in the mean of {}, {} at worst\n",
                        percent(regret->mean, 2), counted(regret->layers, "layer"), percent(regret->worst, 2));
  return text;
}

Json json_of(const commands::LayerOutcome& outcome) {
  return {{"layer", outcome.layer}, {"schedules", commands::schedules_json(outcome)}};
}

const CaseRecord* record_of(const commands::LayerOutcome& outcome, std::string_view schedule) {
  for (const commands::ScheduleRun& run : outcome.runs)
    if (run.record.schedule == schedule) return &run.record;
  return nullptr;
}

}  // namespace

std::vector<GridSummary> summarise(const std::vector<commands::LayerOutcome>& outcomes) {
  std::vector<GridSummary> rows;
  std::vector<std::vector<double>> errors;
  for (const commands::LayerOutcome& outcome : outcomes) {
    const CaseRecord* tutel = record_of(outcome, "tutel");
    for (const commands::ScheduleRun& run : outcome.runs) {
      const CaseRecord& r = run.record;
      auto row = std::ranges::find(rows, r.schedule, &GridSummary::schedule);
      if (row == rows.end()) {
        row = rows.insert(rows.end(), GridSummary());
        row->schedule = r.schedule;
        errors.emplace_back();
      }
      ++(r.status == CaseStatus::ok ? row->ok : row->others);
      if (r.status != CaseStatus::ok || !timed(r)) continue;
      if (!predicted(r)) continue;
      errors[row - rows.begin()].push_back(std::abs(commands::measured_over_predicted(r) - 1));
      row->exposed_share += summary(r, "exposed_s") / summary(r, "total_s");
      row->overlap += summary(r, "overlap_efficiency");
      if (tutel == nullptr || tutel->status != CaseStatus::ok) continue;
      ++row->compared;
      row->measured_speedup += summary(*tutel, "total_s") / summary(r, "total_s");
      row->predicted_speedup += prediction(*tutel, "total_s") / prediction(r, "total_s");
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    GridSummary& row = rows[i];
    if (row.compared > 0) row.measured_speedup /= row.compared, row.predicted_speedup /= row.compared;
    if (errors[i].empty()) continue;
    row.median_error = median(errors[i]);
    row.worst_error = *std::ranges::max_element(errors[i]);
    row.exposed_share /= static_cast<double>(errors[i].size());
    row.overlap /= static_cast<double>(errors[i].size());
  }
  return rows;
}

std::string text_of(const LayerbenchResults& results) {
  std::string text;
  for (const commands::LayerOutcome& outcome : results.outcomes) text += text_of(outcome, results);
  if (!results.grid.empty()) text += summary_text(results);
  return text + "records: " + results.records_path;
}

std::string json_of(const LayerbenchResults& results) {
  Json all{{"cluster", results.cluster}, {"records", results.records_path}};
  if (results.grid.empty()) {
    all.update(json_of(results.outcomes.front()));
    return document_text(all);
  }
  all["grid"] = results.grid;
  all["layers"] = Json::array();
  for (const commands::LayerOutcome& outcome : results.outcomes) all["layers"].push_back(json_of(outcome));
  all["summary"] = Json::array();
  for (const GridSummary& s : summarise(results.outcomes))
    all["summary"].push_back({{"schedule", s.schedule},
                              {"ok", s.ok},
                              {"others", s.others},
                              {"compared", s.compared},
                              {"measured_speedup", s.measured_speedup},
                              {"predicted_speedup", s.predicted_speedup},
                              {"median_error", s.median_error},
                              {"worst_error", s.worst_error},
                              {"exposed_share", s.exposed_share},
                              {"overlap", s.overlap}});
  if (const auto regret = regret_of(results.outcomes))
    all["regret"] = {{"layers", regret->layers},
                     {"mean", regret->mean},
                     {"worst", regret->worst},
                     {"worst_layer", regret->worst_layer}};
  return document_text(all);
}

}  // namespace moe::layerbench
