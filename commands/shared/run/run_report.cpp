#include "commands/shared/run/run_report.h"

#include <algorithm>

#include "commands/shared/run/layer_records.h"
#include "commands/shared/run/target.h"
#include "moe/base/log.h"
#include "moe/base/table.h"
#include "moe/record/record_json.h"

namespace moe::commands {

namespace {

// Returns the first two items of "ROW: REASON; ROW: REASON; ..." and the number of further ones. Records list all.
std::string first_rows(const std::string& rows) {
  constexpr size_t kNamed = 2;
  size_t named = 0, more = 0, end = rows.size();
  for (size_t at = rows.find("; "); at != std::string::npos; at = rows.find("; ", at + 1))
    if (++named == kNamed) {
      end = at;
      more = 1;
    } else if (named > kNamed) {
      ++more;
    }
  return more > 0 ? fmt::format("{} and {} more", rows.substr(0, end), more) : rows;
}

// Returns the share of tasks that overran, which medians over passes do not show; empty if none did.
std::string overrun_note(const CaseRecord& record) {
  constexpr std::string_view kShare = "overrun_share";
  const double share = record.summary.has(kShare) ? record.summary.number(kShare, record.key) : 0;
  return share > 0 ? fmt::format("; {:.2f} % of tasks took longer than modelled", 100 * share) : "";
}

}  // namespace

std::string tasks_text(const LayerOutcome& outcome) {
  std::string text;
  for (const ScheduleRun& run : outcome.runs) {
    if (run.tasks.empty()) continue;
    Table table({"tasks", "number", "model ms", "ms", "median", "worst", "which"});
    for (const measure::TaskComparison& t : run.tasks) {
      const auto ratio = [](double r) { return r > 0 ? fmt::format("{:.3f}", r) : "-"; };
      table.add({fmt::format("{} {}", name_of(t.phase), name_of(t.kind)), fmt::format("{}", t.tasks),
                 fmt::format("{:.2f}", 1e3 * t.predicted_s), fmt::format("{:.2f}", 1e3 * t.measured_s),
                 ratio(t.median_ratio), ratio(t.worst_ratio), t.worst_task.substr(0, t.worst_task.find(" of layer"))});
    }
    text += fmt::format("Tasks of {}: medians of passes, ratios to predictions{}\n\n{}\n", run.plan.schedule,
                        overrun_note(run.record), table.text());
  }
  return text;
}

std::string reasons_text(const LayerOutcome& outcome) {
  std::string text;
  for (const ScheduleRun& run : outcome.runs)
    if (const CaseRecord& r = run.record; r.prediction.has("weak_rows"))
      text += fmt::format("  {}: its prediction uses weak rows: {}\n", r.schedule,
                          first_rows(r.prediction.text("weak_rows", r.key)));
  for (const ScheduleRun& run : outcome.runs)
    if (const CaseRecord& r = run.record; !r.reason.empty())
      text += fmt::format("  {}: {}: {}\n", r.schedule, name_of(r.status), r.reason);
  return text.empty() ? text : text + '\n';
}

std::string dilation_text(const std::vector<ScheduleRun>& runs) {
  double least = runs.empty() ? 1 : runs.front().record.dilation, most = least;
  for (const ScheduleRun& run : runs) {
    least = std::min(least, run.record.dilation);
    most = std::max(most, run.record.dilation);
  }
  return least == most ? fmt::format("dilation {:.2f}", least) : fmt::format("dilations {:.2f} to {:.2f}", least, most);
}

Json schedules_json(const LayerOutcome& outcome) {
  auto list = Json::array();
  for (const ScheduleRun& run : outcome.runs) {
    const CaseRecord& r = run.record;
    Json row{{"schedule", r.schedule}, {"status", name_of(r.status)},        {"emulated", r.emulated},
             {"dilation", r.dilation}, {"degree_forward", r.degree_forward}, {"degree_backward", r.degree_backward}};
    if (!r.reason.empty()) row["reason"] = r.reason;
    for (const auto& [part, fields] : {std::pair{"measured", &r.summary}, {"predicted", &r.prediction}})
      if (!fields->empty()) row[part] = to_json(*fields);
    for (const measure::TaskComparison& t : run.tasks)
      row["tasks"].push_back({{"kind", name_of(t.kind)},
                              {"phase", name_of(t.phase)},
                              {"tasks", t.tasks},
                              {"measured_s", t.measured_s},
                              {"predicted_s", t.predicted_s},
                              {"median_ratio", t.median_ratio},
                              {"worst_ratio", t.worst_ratio},
                              {"worst_task", t.worst_task}});
    for (const PackingRun& packing : run.packings)
      row["packings"].push_back({{"packing", packing.steps.packing},
                                 {"first_step", packing.steps.first},
                                 {"steps", packing.steps.steps},
                                 {"expert_s", packing.steps.times.expert_s},
                                 {"alltoall_s", packing.steps.times.alltoall_s},
                                 {"step_s", packing.steps.step_s},
                                 {"predicted_s", packing.predicted_s},
                                 {"moved_bytes", packing.steps.moved_bytes},
                                 {"moving_s", packing.steps.moving_s},
                                 {"memory_bytes", packing.steps.memory_bytes},
                                 {"planned_bytes", packing.planned_bytes}});
    list.push_back(std::move(row));
  }
  return list;
}

std::vector<size_t> batches_that_fit(std::span<const double> bytes, double left_bytes) {
  std::vector<size_t> ends;
  double taken = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0 && taken + bytes[i] > left_bytes) {
      ends.push_back(i);
      taken = 0;
    }
    taken += bytes[i];
  }
  if (!bytes.empty()) ends.push_back(bytes.size());
  return ends;
}

std::vector<BatchedRun> runs_of(const std::vector<measure::LayerMeasurement>& batches) {
  std::vector<BatchedRun> all;
  for (const measure::LayerMeasurement& batch : batches)
    for (const measure::MeasuredRun& run : batch.runs) all.push_back({batch, run});
  return all;
}

std::vector<measure::LayerMeasurement> measure_in_batches(std::span<const measure::PlannedRun> planned,
                                                          const measure::LayerBenchSettings& settings) {
  std::vector<size_t> ends{planned.size()};
  if (!settings.emulated) {
    std::vector<double> bytes;
    for (const measure::PlannedRun& run : planned) {
      const int64_t ranks = ranks_sharing_memory(settings.ranks, run.plan.shape.parallel.ranks());
      double each = estimated_bytes(run.plan, settings.ranks), packed = 0;
      for (const measure::PlannedRun& next : run.packed)  // both plans are in memory while experts move
        packed = std::max(packed, estimated_bytes(next.plan, settings.ranks));
      bytes.push_back((each + packed) * static_cast<double>(ranks));
    }
    ends = batches_that_fit(bytes, kUsableFreeMemoryShare * free_bytes(settings.ranks));
    if (ends.size() > 1 && settings.ranks.is_leader())
      log_warning(fmt::format(
          "the {} has no memory for all {} schedules at once, only for {}, so they are timed in {} batches",
          settings.ranks.device == DeviceKind::cuda ? "GPU" : "machine", planned.size(), ends.front(), ends.size()));
  }
  std::vector<measure::LayerMeasurement> measured;
  for (size_t begin = 0; const size_t end : ends) {
    measured.push_back(measure::measure_layer(
        {planned.begin() + static_cast<std::ptrdiff_t>(begin), planned.begin() + static_cast<std::ptrdiff_t>(end)},
        settings));
    begin = end;
  }
  return measured;
}

}  // namespace moe::commands
