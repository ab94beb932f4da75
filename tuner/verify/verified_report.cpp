#include "tuner/verify/verified_report.h"

#include <algorithm>
#include <cmath>

#include "moe/base/table.h"
#include "moe/measure/statistics.h"
#include "tuner/fit_report.h"
#include "tuner/reproduce/printed.h"

namespace moe {
namespace {

constexpr double kClearDifference = 0.03;  // predictions closer than this don't fix a ranking

double predicted(const CaseRecord& record) { return record.prediction.number("total_s", record.key); }
double measured(const CaseRecord& record) { return record.summary.number("total_s", record.key); }
bool was_timed(const CaseRecord& record) { return record.summary.has("total_s"); }

std::vector<const CaseRecord*> runs_of(const VerifiedResults& results) {
  std::vector<const CaseRecord*> all;
  for (const LayerOutcome& outcome : results.outcomes)
    for (const CaseRecord& record : outcome.records) all.push_back(&record);
  return all;
}

// Mean over the verified layers of tutel's measured time over the schedule's; 0 where tutel did not run.
double measured_speedup(const VerifiedResults& results, std::string_view schedule) {
  double sum = 0;
  int layers = 0;
  for (const LayerOutcome& outcome : results.outcomes) {
    double tutel = 0, own = 0;
    for (const CaseRecord& record : outcome.records) {
      if (was_timed(record) && record.schedule == "tutel") tutel = measured(record);
      if (was_timed(record) && record.schedule == schedule) own = measured(record);
    }
    if (tutel > 0 && own > 0) sum += tutel / own, ++layers;
  }
  return layers > 0 ? sum / layers : 0;
}

// How the measured order of schedules compares with the predicted one, where that is clear.
struct Ranking {
  int pairs = 0, agree = 0;
};

Ranking ranking(const VerifiedResults& results) {
  Ranking r;
  for (const LayerOutcome& outcome : results.outcomes)
    for (const CaseRecord& a : outcome.records)
      for (const CaseRecord& b : outcome.records) {
        if (&a >= &b || !was_timed(a) || !was_timed(b)) continue;
        const double ratio = predicted(a) / predicted(b);
        if (std::abs(std::log(ratio)) <= std::log1p(kClearDifference)) continue;
        ++r.pairs;
        r.agree += (ratio < 1) == (measured(a) < measured(b));
      }
  return r;
}

struct Agreement {
  double median_error = 0, worst_error = 0, worst_overruns = 0;
  int runs = 0;
};

Agreement agreement(const VerifiedResults& results) {
  Agreement a;
  std::vector<double> errors;
  for (const CaseRecord* record : runs_of(results)) {
    if (!was_timed(*record)) continue;
    errors.push_back(std::abs(measured_over_predicted(*record) - 1));
    if (record->summary.has("overrun_share"))
      a.worst_overruns = std::max(a.worst_overruns, record->summary.number("overrun_share", record->key));
  }
  a.runs = static_cast<int>(errors.size());
  if (a.runs > 0) a.median_error = median(errors), a.worst_error = quantile(errors, 1);
  return a;
}

std::string summary_table(const VerifiedResults& results) {
  Table table({"schedule", "simulated", "measured", "paper", "of the bound", "r_f", "r_b", "r_f != r_b"});
  const auto times = [](double speedup) { return speedup > 0 ? fmt::format("{:.3f}x", speedup) : "-"; };
  for (const ScheduleSummary& s : summarise(results.rows, results.schedules))
    table.add({std::string(s.schedule), times(s.speedup), times(measured_speedup(results, s.schedule)),
               times(printed_speedup(results.grid.name, s.schedule)), fmt::format("{:.1f} %", 100 * s.efficiency),
               degree_range(s.degrees_forward), degree_range(s.degrees_backward), fmt::format("{}", s.apart)});
  return table.text();
}

std::string runs_table(const VerifiedResults& results) {
  Table table(
      {"layer", "schedule", "r_f", "r_b", "predicted ms", "measured ms", "error", "overruns", "grad err", "status"});
  for (const CaseRecord* r : runs_of(results)) {
    const std::string status = std::string(name_of(r->status)) + (r->reason.empty() ? "" : ": " + r->reason);
    const bool timed = was_timed(*r);
    table.add({r->parameters.text("layer", r->key), r->schedule, fmt::format("{}", r->degree_forward),
               fmt::format("{}", r->degree_backward),
               r->prediction.has("total_s") ? fmt::format("{:.3f}", 1e3 * predicted(*r)) : "-",
               timed ? fmt::format("{:.3f}", 1e3 * measured(*r)) : "-",
               timed ? fmt::format("{:+.2f} %", 100 * (measured_over_predicted(*r) - 1)) : "-",
               r->summary.has("overrun_share")
                   ? fmt::format("{:.2f} %", 100 * r->summary.number("overrun_share", r->key))
                   : "-",
               timed ? fmt::format("{:.1e}", r->summary.number("worst_error", r->key)) : "-", status});
  }
  return table.text();
}

std::string agreement_text(const VerifiedResults& results) {
  const Agreement a = agreement(results);
  const Ranking r = ranking(results);
  if (a.runs == 0) return {};
  std::string text = fmt::format("measured against predicted: {:.2f} % off in the median, {:.2f} % at worst\n",
                                 100 * a.median_error, 100 * a.worst_error);
  text += fmt::format("ranking: as predicted in {} of {} pairs that differ by more than {:.0f} %\n", r.agree, r.pairs,
                      100 * kClearDifference);
  if (results.emulated)
    return text +
           fmt::format("overruns of a run: at most {:.2f} %; hand-overs between lanes are not in the predictions\n",
                       100 * a.worst_overruns);
  return text +
         "unpaced ranks share this machine's cores, which no prediction knows of: read the ranking, not the errors\n";
}

}  // namespace

std::string text_of(const VerifiedResults& results) {
  const Profile& c = results.cluster;
  std::string text = fmt::format("\n{}: {} nodes x {} ranks, {}\n\n{}\n", c.name, c.nodes, c.ranks_per_node,
                                 results.emulated ? "emulated by 2 x 2 threads; every figure below is of that emulation"
                                                  : "threads of this machine, unpaced",
                                 fit_table(results.fitted, results.emulated ? &c : nullptr));
  text += fmt::format(
      "{} layers of {}: mean speedup over tutel (simulated: all layers; measured: the {} verified ones)\n\n{}\n",
      results.rows.size(), results.grid.name, results.outcomes.size(), summary_table(results));
  text +=
      fmt::format("verified layers, forward + backward: predicted from the fit (ragged chunks), and measured\n\n{}\n{}",
                  runs_table(results), agreement_text(results));
  text += fmt::format("\nrecords  {}\nprofile  {}\n", results.records_path, results.profile_path);
  if (!results.trace_path.empty())
    text += fmt::format("timeline {} (open it in ui.perfetto.dev)\n", results.trace_path);
  return text;
}

Json json_of(const VerifiedResults& results) {
  Json verified = Json::array(), summary = Json::array();
  for (const CaseRecord* r : runs_of(results)) {
    verified.push_back({{"layer", r->parameters.text("layer", r->key)},
                        {"schedule", r->schedule},
                        {"status", name_of(r->status)},
                        {"degree_forward", r->degree_forward},
                        {"degree_backward", r->degree_backward},
                        {"predicted_s", predicted(*r)},
                        {"measured_s", nullptr},
                        {"dilation", r->dilation},
                        {"emulated", r->emulated}});
    if (was_timed(*r)) verified.back()["measured_s"] = measured(*r);
    if (!r->reason.empty()) verified.back()["reason"] = r->reason;
  }
  for (const ScheduleSummary& s : summarise(results.rows, results.schedules))
    summary.push_back({{"schedule", s.schedule},
                       {"simulated_speedup", s.speedup},
                       {"measured_speedup", measured_speedup(results, s.schedule)},
                       {"printed_speedup", printed_speedup(results.grid.name, s.schedule)},
                       {"degrees_apart", s.apart}});
  const Agreement a = agreement(results);
  const Ranking r = ranking(results);
  return {{"cluster", results.cluster.name},
          {"grid", results.grid.name},
          {"emulated", results.emulated},
          {"records", results.records_path},
          {"profile", results.profile_path},
          {"trace", results.trace_path},
          {"median_error", a.median_error},
          {"worst_error", a.worst_error},
          {"worst_overruns", a.worst_overruns},
          {"ranking_pairs", r.pairs},
          {"ranking_agrees", r.agree},
          {"summary", summary},
          {"verified", verified},
          {"layers", to_json(results.rows)}};
}

}  // namespace moe
