#include "tuner/verify/verified_report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>

#include "commands/shared/printed.h"
#include "commands/shared/results_json.h"
#include "commands/shared/run/layer_records.h"
#include "moe/base/config_files.h"
#include "moe/base/statistics.h"
#include "moe/base/table.h"
#include "moe/base/units.h"
#include "moe/measure/core_probe.h"
#include "moe/measure/layers/proxy.h"
#include "moe/record/pass_times.h"
#include "tuner/fit.h"
#include "tuner/sweep_report.h"

namespace moe::tuner {
namespace {

// Returns the mean, with the number of layers that it covers if that is fewer than ran.
std::string measured_text(const MeasuredSchedule& measured, int of_layers) {
  if (measured.layers == 0) return "-";
  return fmt::format("{:.3f}x{}", measured.measured,
                     measured.layers < of_layers ? fmt::format(" ({})", measured.layers) : "");
}

using Summaries = std::vector<commands::ScheduleSummary>;

Table summary_table(const VerifiedResults& results, const Summaries& summaries, int of_layers) {
  Table table({"schedule", "simulated", "measured", commands::paper_column_header(results.grid), "of bound",
               "of own bound", "r_f", "r_b", "r_f != r_b"});
  const auto times = [](double speedup) { return speedup > 0 ? fmt::format("{:.3f}x", speedup) : "-"; };
  for (const commands::ScheduleSummary& s : summaries)
    table.add({std::string(s.schedule), simulated_speedup(s),
               measured_text(measured_schedule(results.outcomes, s.schedule), of_layers),
               times(commands::printed_speedup(results.grid, results.cluster, results.degrees, s.schedule)),
               percent(s.bound_ratio), percent(s.own_bound_ratio), commands::degree_range(s.degrees_forward),
               commands::degree_range(s.degrees_backward), fmt::format("{}", s.differing_degrees)});
  return table;
}

std::string summary_text(const VerifiedResults& results, int of_layers) {
  const Summaries summaries = commands::summarise(results.rows, results.schedules);
  const std::string fastest = fastest_text(summaries);
  return summary_table(results, summaries, of_layers).text() + (fastest.empty() ? "" : fmt::format("  {}\n", fastest));
}

std::string runs_table(const VerifiedResults& results) {
  Table table(
      {"layer", "schedule", "r_f", "r_b", "predicted ms", "measured ms", "error", "overruns", "grad err", "status"});
  for (const CaseRecord* r : runs_of(results.outcomes)) {
    const bool timed = was_timed(*r);
    table.add({r->parameters.text("layer", r->key), r->schedule, fmt::format("{}", r->degree_forward),
               fmt::format("{}", r->degree_backward),
               r->prediction.has("total_s") ? fmt::format("{:.3f}", 1e3 * predicted_s(*r)) : "-",
               timed ? fmt::format("{:.3f}", 1e3 * run_s(*r)) : "-",
               timed ? fmt::format("{:+.2f} %", 100 * error_of(*r)) : "-",
               r->summary.has("overrun_share") ? percent(r->summary.number("overrun_share", r->key), 2) : "-",
               timed ? fmt::format("{:.1e}", r->summary.number("worst_error", r->key)) : "-",
               std::string(name_of(r->status))});
  }
  return table.text();
}

std::string left_out_text(const RunFigures& figures) {
  std::string text;
  for (const auto& [reason, runs] : figures.left_out_reasons)
    text += fmt::format("{} left out of means, errors and ranking: {}\n", counted(runs, "run"), reason);
  return text;
}

// Names the rows with a marked fit, and counts the layers that they price.
std::string weak_text(const VerifiedResults& results) {
  std::string text;
  for (const auto& [row, layers] : commands::layers_by_weak_row(results.rows))
    text += fmt::format("  weak row {} ({} layers)\n", row, layers);
  return text.empty() ? text : text + '\n';
}

// Returns the share of the error that the first `named` kinds do not explain.
double rest_of(const ErrorParts& parts, size_t named) {
  double rest = parts.rest;
  for (size_t i = named; i < parts.kinds.size(); ++i) rest += parts.kinds[i].second;
  return rest;
}

// Returns the tasks that cause the error, and the consequence of the error for choosing schedules.
std::string error_text(const RunFigures& figures) {
  constexpr size_t kNamed = 3;
  const ErrorParts& parts = figures.errors;
  std::string kinds;
  for (size_t i = 0; i < parts.kinds.size() && i < kNamed; ++i)
    kinds += fmt::format("{} {:+.1f} %, ", parts.kinds[i].first, 100 * parts.kinds[i].second);
  std::string text = fmt::format("all runs together were {:+.1f} % off their predictions: {}the rest {:+.1f} %\n",
                                 100 * parts.total, kinds, 100 * rest_of(parts, kNamed));
  const ChoiceLoss& lost = figures.choice;
  if (lost.layers > 0)
    text += fmt::format(
        "choice: the schedule predicted best took {:+.1f} % against the one that ran best, on average over {} "
        "layers, {:+.1f} % at worst\n",
        100 * lost.mean, lost.layers, 100 * lost.worst);
  return text;
}

std::string agreement_text(const VerifiedResults& results, const RunFigures& figures) {
  const Agreement& a = figures.agreement;
  const Ranking& r = figures.ranking;
  if (a.sound == 0) return {};
  std::string text = fmt::format("measured against predicted times: off by {:.2f} % in the median, {:.2f} % at worst\n",
                                 100 * a.median_error, 100 * a.worst_error);
  text += fmt::format("ranking: as predicted in {} of {} pairs that differ by more than {:.0f} % (Kendall's tau {})\n",
                      r.agree, r.pairs, 100 * kClearDifference, r.pairs > 0 ? fmt::format("{:.3f}", r.tau()) : "n/a");
  if (results.emulated)
    return text +
           fmt::format(
               "overruns of a sound run: at most {:.2f} %; predictions do not include hand-overs between lanes\n",
               100 * a.worst_overruns);
  text += error_text(figures);
  if (a.on_slow_cores > 0)
    text += fmt::format("{} of {} were timed on slow cores: a probe took up to {:.2f} times its best time\n",
                        a.on_slow_cores, counted(a.sound, "run"), a.worst_slowdown);
  if (a.on_slow_cores > 0 && a.on_slow_cores < a.sound)
    text += fmt::format("the others were {:.2f} % off in the median, {:.2f} % at worst\n", 100 * a.fast_median,
                        100 * a.fast_worst);
  if (results.prices_slowdown > measure::kSlowCores)
    text += fmt::format(
        "prices were measured on slow cores: a probe took {:.2f} times its best time since then; measure again\n",
        results.prices_slowdown);
  return text + "Prices were measured with all ranks busy. Other load on this machine is not predicted.\n";
}

std::string time_text(const VerifiedResults& results, const RunTime& t) {
  std::string text = fmt::format(
      "time: measuring {:.1f} s, planning {:.1f} s, verifying {:.1f} s, passes {:.1f} s ({} repeated because they were "
      "disturbed)\n",
      results.measuring_s, results.planning_s, t.proving_s, t.unpaced_s + t.timed_s, t.repeats);
  if (t.longest == nullptr || !results.emulated) return text;
  const CaseRecord& r = *t.longest;
  return text + fmt::format("      longest {}: {:.1f} s at dilation {:.2f}, by {}\n", r.parameters.text("layer", r.key),
                            r.summary.number("timed_wall_s", r.key), r.dilation,
                            r.summary.text("dilation_set_by", r.key));
}

}  // namespace

std::string text_of(const VerifiedResults& results, const RunFigures& figures) {
  const Profile& c = results.cluster;
  std::string text =
      fmt::format("\n{}: {} x {} ranks, {}\n\n{}\n", results.place, counted(c.nodes, "node"), c.ranks_per_node,
                  results.emulated
                      ? fmt::format("emulated by {}; all figures below are from this emulation", measure::proxy_ranks())
                      : c.source + ", unpaced",
                  fit_table(results.fitted, results.emulated ? &c : nullptr));
  text += weak_text(results);
  if (results.whole_grid) {
    text += grid_text(results, figures) + left_out_text(figures);
  } else {
    const bool some = std::ranges::any_of(results.verified, [&](const Schedule* s) {
      return measured_schedule(results.outcomes, s->name).layers < figures.layers;
    });
    text += fmt::format(
        "{} layers of {}: mean speedup over tutel (simulated: all layers; measured: the {} verified ones{})\n\n{}\n",
        results.rows.size(), results.grid.name, figures.layers, some ? ", or as many of them as (N) says" : "",
        summary_text(results, figures.layers));
    text += fmt::format(
        "verified layers, forward + backward: predicted from the fit (ragged chunks), and measured\n\n{}\n{}",
        runs_table(results), left_out_text(figures));
  }
  text += agreement_text(results, figures) + time_text(results, figures.time);
  text += fmt::format("\nrecords  {}\nprofile  {}\n", results.records_path, results.profile_path);
  if (!results.trace_path.empty())
    text += fmt::format("timeline {} (open it in ui.perfetto.dev)\n", results.trace_path);
  return text;
}

std::string doubt_text(const RunFigures& figures) {
  return fmt::format(
      "{} of {} runs were sound, fewer than half: measured figures are doubtful; other load may disturb this machine "
      "({} doctor finds causes)",
      figures.agreement.sound, figures.agreement.runs, program_command());
}

namespace {

Json runs_json(const VerifiedResults& results) {
  Json verified = Json::array();
  for (const CaseRecord* r : runs_of(results.outcomes)) {
    verified.push_back({{"layer", r->parameters.text("layer", r->key)},
                        {"schedule", r->schedule},
                        {"status", name_of(r->status)},
                        {"degree_forward", r->degree_forward},
                        {"degree_backward", r->degree_backward},
                        {"predicted_s", nullptr},
                        {"measured_s", nullptr},
                        {"dilation", r->dilation},
                        {"emulated", r->emulated}});
    if (r->prediction.has("total_s")) verified.back()["predicted_s"] = predicted_s(*r);
    if (was_timed(*r)) verified.back()["measured_s"] = run_s(*r);
    if (!r->reason.empty()) verified.back()["reason"] = r->reason;
  }
  return verified;
}

Json summary_json(const VerifiedResults& results) {
  Json summary = Json::array();
  for (const commands::ScheduleSummary& s : commands::summarise(results.rows, results.schedules)) {
    const MeasuredSchedule m = measured_schedule(results.outcomes, s.schedule);
    summary.push_back(
        {{"schedule", s.schedule},
         {"simulated_speedup", s.speedup},
         {"simulated_layers", s.compared},
         {"measured_speedup", m.measured},
         {"predicted_speedup", m.predicted},
         {"measured_layers", m.layers},
         {"measured_degrees_apart", m.differing_degrees},
         {"printed_speedup", commands::printed_speedup(results.grid, results.cluster, results.degrees, s.schedule)},
         {"degrees_apart", s.differing_degrees}});
  }
  return summary;
}

}  // namespace

Json json_of(const VerifiedResults& results, const RunFigures& figures) {
  const auto best = [](const BestDegrees& b) {
    return Json{{"layers", b.layers}, {"apart", b.differing_degrees}, {"apart_by_1_percent", b.apart_by_1_percent}};
  };
  const auto& [layers, a, r, parts, lost, t, best_measured, best_predicted, left_out_reasons] = figures;
  Json kinds = Json::object();
  for (const auto& [kind, share] : parts.kinds) kinds[kind] = share;
  return {{"cluster", results.cluster.name},
          {"grid", results.grid.name},
          {"emulated", results.emulated},
          {"records", results.records_path},
          {"profile", results.profile_path},
          {"trace", results.trace_path},
          {"fit", fit_json(results.fitted)},
          {"median_error", a.median_error},
          {"worst_error", a.worst_error},
          {"slow_cores",
           {{"runs", a.on_slow_cores},
            {"worst", a.worst_slowdown},
            {"prices", results.prices_slowdown},
            {"others_median_error", a.fast_median},
            {"others_worst_error", a.fast_worst}}},
          {"median_overruns", a.median_overruns},
          {"worst_overruns", a.worst_overruns},
          {"ranking_pairs", r.pairs},
          {"ranking_agrees", r.agree},
          {"kendall_tau", r.pairs > 0 ? Json(r.tau()) : Json(nullptr)},
          {"choice_loss", {{"layers", lost.layers}, {"mean", lost.mean}, {"worst", lost.worst}}},
          {"error_parts", {{"total", parts.total}, {"rest", parts.rest}, {"kinds", kinds}}},
          {"best_degrees", {{"measured", best(best_measured)}, {"predicted", best(best_predicted)}}},
          {"wall_s",
           {{"measuring", results.measuring_s},
            {"planning", results.planning_s},
            {"proving", t.proving_s},
            {"unpaced", t.unpaced_s},
            {"timed", t.timed_s}}},
          {"repeats", t.repeats},
          {"left_out", left_out_reasons},
          {"sound_runs", a.sound},
          {"doubtful", figures.is_doubtful()},
          {"summary", summary_json(results)},
          {"verified", runs_json(results)},
          {"layers", to_json(results.rows)}};
}

namespace {

constexpr double kMinSound = 0.5;  // least share of sound runs; below it, figures are doubtful
constexpr size_t kMaxReasonLength = 120;

// Returns the layer's sound runs of schedules, without tried degrees.
std::vector<const CaseRecord*> sound_runs(const commands::LayerOutcome& outcome) {
  std::vector<const CaseRecord*> sound;
  for (const commands::ScheduleRun& run : outcome.runs)
    if (is_sound_run(run.record)) sound.push_back(&run.record);
  return sound;
}

const CaseRecord* sound_run(const commands::LayerOutcome& outcome, std::string_view schedule) {
  for (const CaseRecord* record : sound_runs(outcome))
    if (record->schedule == schedule) return record;
  return nullptr;
}

// Returns the median over every other pass, starting at `first`.
double median_of_half(const CaseRecord& record, size_t first) {
  const std::vector<double> passes = passes_s(record);
  std::vector<double> half;
  for (size_t i = first; i < passes.size(); i += 2) half.push_back(passes[i]);
  return half.empty() ? 0 : median(half);
}

// Computes the agreement of the sound runs.
Agreement agreement(const std::vector<commands::LayerOutcome>& outcomes) {
  Agreement a;
  std::vector<double> errors, fast, overruns;
  for (const CaseRecord* record : runs_of(outcomes)) {
    if (record->status != CaseStatus::unsupported) ++a.runs;
    if (!is_sound_run(*record)) continue;
    errors.push_back(std::abs(error_of(*record)));
    if (core_slowdown(*record) <= measure::kSlowCores) fast.push_back(errors.back());
    a.worst_slowdown = std::max(a.worst_slowdown, core_slowdown(*record));
    if (record->summary.has("overrun_share")) overruns.push_back(record->summary.number("overrun_share", record->key));
  }
  a.sound = static_cast<int>(errors.size());
  a.on_slow_cores = static_cast<int>(errors.size() - fast.size());
  if (!fast.empty()) a.fast_median = median(fast), a.fast_worst = quantile(fast, 1);
  if (!errors.empty()) a.median_error = median(errors), a.worst_error = quantile(errors, 1);
  if (!overruns.empty()) a.median_overruns = median(overruns), a.worst_overruns = quantile(overruns, 1);
  return a;
}

std::map<std::string, int> left_out_reasons(const std::vector<commands::LayerOutcome>& outcomes) {
  std::map<std::string, int> reasons;
  for (const CaseRecord* record : runs_of(outcomes))
    if (record->status == CaseStatus::invalid)
      ++reasons["invalid: too many tasks took longer than their modelled time"];
    else if (!is_sound_run(*record))
      ++reasons[fmt::format("{}: {}", name_of(record->status), record->reason.substr(0, kMaxReasonLength))];
  return reasons;
}

}  // namespace

std::vector<const CaseRecord*> runs_of(const commands::LayerOutcome& outcome) {
  std::vector<const CaseRecord*> all;
  for (const commands::ScheduleRun& run : outcome.runs) all.push_back(&run.record);
  for (const CaseRecord& record : outcome.tried) all.push_back(&record);
  return all;
}

std::vector<const CaseRecord*> runs_of(const std::vector<commands::LayerOutcome>& outcomes) {
  std::vector<const CaseRecord*> all;
  for (const commands::LayerOutcome& outcome : outcomes) std::ranges::move(runs_of(outcome), std::back_inserter(all));
  return all;
}

MeasuredSchedule measured_schedule(const std::vector<commands::LayerOutcome>& outcomes, std::string_view schedule) {
  MeasuredSchedule m;
  for (const commands::LayerOutcome& outcome : outcomes) {
    const CaseRecord *tutel = sound_run(outcome, "tutel"), *own = sound_run(outcome, schedule);
    if (tutel == nullptr || own == nullptr) continue;
    ++m.layers;
    m.measured += run_s(*tutel) / run_s(*own);
    m.predicted += predicted_s(*tutel) / predicted_s(*own);
    m.differing_degrees += own->degree_forward != own->degree_backward;
  }
  if (m.layers > 0) m.measured /= m.layers, m.predicted /= m.layers;
  return m;
}

BestDegrees best_degrees(const std::vector<commands::LayerOutcome>& outcomes, Times times) {
  BestDegrees best;
  for (const commands::LayerOutcome& outcome : outcomes) {
    const auto& tried = outcome.tried;
    if (tried.empty() || !std::ranges::all_of(tried, is_sound_run)) continue;
    const auto seconds = [&](const CaseRecord& r, std::string_view phase) {
      return (times == Times::measured ? r.summary : r.prediction).number(phase, r.key);
    };
    const auto forward = [&](const CaseRecord& r) { return seconds(r, "forward_s"); };
    const auto backward = [&](const CaseRecord& r) { return seconds(r, "backward_s"); };
    const auto both = [&](const CaseRecord& r) { return forward(r) + backward(r); };
    const CaseRecord& f = *std::ranges::min_element(tried, {}, forward);
    const CaseRecord& b = *std::ranges::min_element(tried, {}, backward);
    const double equal_s = both(*std::ranges::min_element(tried, {}, both));
    ++best.layers;
    best.differing_degrees += f.degree_forward != b.degree_backward;
    best.apart_by_1_percent += equal_s > 1.01 * (forward(f) + backward(b));
  }
  return best;
}

Ranking ranking(const std::vector<commands::LayerOutcome>& outcomes) {
  Ranking r;
  for (const commands::LayerOutcome& outcome : outcomes) {
    const std::vector<const CaseRecord*> sound = sound_runs(outcome);
    for (size_t i = 0; i < sound.size(); ++i)
      for (size_t j = i + 1; j < sound.size(); ++j) {
        const CaseRecord &a = *sound[i], &b = *sound[j];
        const double ratio = predicted_s(a) / predicted_s(b);
        if (std::abs(std::log(ratio)) <= std::log1p(kClearDifference)) continue;
        ++r.pairs;
        r.agree += (ratio < 1) == (run_s(a) < run_s(b));
      }
  }
  return r;
}

ErrorParts error_parts(const std::vector<commands::LayerOutcome>& outcomes) {
  ErrorParts parts;
  std::map<std::string, double> excess_s;
  double all_predicted_s = 0, all_run_s = 0;
  for (const CaseRecord* record : runs_of(outcomes)) {
    if (!is_sound_run(*record)) continue;
    all_predicted_s += predicted_s(*record);
    all_run_s += run_s(*record);
    for (const auto& [name, value] : record->summary)
      if (name.starts_with(commands::kExcess))
        excess_s[name.substr(commands::kExcess.size())] += record->summary.number(name, record->key);
  }
  if (all_predicted_s <= 0) return parts;
  parts.total = parts.rest = all_run_s / all_predicted_s - 1;
  for (const auto& [kind, seconds] : excess_s) {
    parts.kinds.emplace_back(kind, seconds / all_predicted_s);
    parts.rest -= seconds / all_predicted_s;
  }
  std::ranges::sort(parts.kinds, std::greater(), [](const auto& part) { return std::abs(part.second); });
  return parts;
}

ChoiceLoss choice_loss(const std::vector<commands::LayerOutcome>& outcomes) {
  ChoiceLoss all;
  for (const commands::LayerOutcome& outcome : outcomes) {
    std::vector<const CaseRecord*> sound = sound_runs(outcome);
    std::erase_if(sound, [](auto* r) { return median_of_half(*r, 1) == 0; });
    if (sound.size() < 2) continue;
    const CaseRecord* chosen = *std::ranges::min_element(sound, {}, [](auto* r) { return predicted_s(*r); });
    const CaseRecord* best = *std::ranges::min_element(sound, {}, [](auto* r) { return median_of_half(*r, 0); });
    const double lost = median_of_half(*chosen, 1) / median_of_half(*best, 1) - 1;
    ++all.layers;
    all.mean += lost;
    all.worst = std::max(all.worst, lost);
  }
  if (all.layers > 0) all.mean /= all.layers;
  return all;
}

RunTime run_time(const std::vector<commands::LayerOutcome>& outcomes) {
  RunTime time;
  double longest_s = 0;
  for (const commands::LayerOutcome& layer : outcomes) {
    const CaseRecord* any = nullptr;  // any run: each run's record has the layer's times
    for (const CaseRecord* r : runs_of(layer)) {
      if (!r->summary.has("timed_wall_s")) continue;
      any = r;
      if (r->summary.has("repeats")) time.repeats += r->summary.whole("repeats", r->key);
    }
    if (any == nullptr) continue;
    const double timed_s = any->summary.number("timed_wall_s", any->key);
    time.proving_s += any->summary.number("proving_wall_s", any->key);
    time.unpaced_s += any->summary.number("unpaced_wall_s", any->key);
    time.timed_s += timed_s;
    if (timed_s > longest_s) longest_s = timed_s, time.longest = any;
  }
  return time;
}

bool RunFigures::is_doubtful() const { return agreement.sound == 0 || agreement.sound < kMinSound * agreement.runs; }

RunFigures figures_of(const std::vector<commands::LayerOutcome>& outcomes) {
  return {.layers = static_cast<int>(outcomes.size()),
          .agreement = agreement(outcomes),
          .ranking = ranking(outcomes),
          .errors = error_parts(outcomes),
          .choice = choice_loss(outcomes),
          .time = run_time(outcomes),
          .best_measured = best_degrees(outcomes, Times::measured),
          .best_predicted = best_degrees(outcomes, Times::predicted),
          .left_out_reasons = left_out_reasons(outcomes)};
}

namespace {

constexpr std::string_view kPrintedApartSchedule = "fsmoe";

std::string times(double speedup) { return speedup > 0 ? fmt::format("{:.3f}x", speedup) : "-"; }

bool paper_differing_degrees_apply(const VerifiedResults& results) {
  return commands::paper_differing_degrees_apply(results.grid, results.cluster, results.degrees);
}

Table speedup_table(const VerifiedResults& results) {
  Table table({"schedule", "layers", "measured", "simulated", "apart", commands::paper_column_header(results.grid),
               "r_f != r_b", "paper's"});
  for (const Schedule* schedule : results.verified) {
    const MeasuredSchedule m = measured_schedule(results.outcomes, schedule->name);
    const bool counted = paper_differing_degrees_apply(results) && schedule->name == kPrintedApartSchedule;
    const double printed = commands::printed_speedup(results.grid, results.cluster, results.degrees, schedule->name);
    table.add({std::string(schedule->name), fmt::format("{}", m.layers), times(m.measured), times(m.predicted),
               m.layers > 0 ? fmt::format("{:+.2f} %", 100 * (m.measured / m.predicted - 1)) : "-", times(printed),
               fmt::format("{}", m.differing_degrees),
               counted ? fmt::format("{}", commands::kPaperDifferingDegrees) : "-"});
  }
  return table;
}

std::string degrees_text(const VerifiedResults& results, const RunFigures& figures) {
  const BestDegrees &measured = figures.best_measured, &predicted = figures.best_predicted;
  if (measured.layers == 0) return {};
  const auto share = [](double count, double of) { return fmt::format("{} ({:.0f} %)", count, 100 * count / of); };
  Table table({"fsmoe, best of r = 1 2 4 8", "layers", "r_f != r_b", "by more than 1 %"});
  for (const auto& [name, best] : {std::pair{"by measured times", measured}, {"by simulated times", predicted}})
    table.add({name, fmt::format("{}", best.layers), share(best.differing_degrees, best.layers),
               share(best.apart_by_1_percent, best.layers)});
  if (paper_differing_degrees_apply(results))
    table.add({"paper", fmt::format("{}", commands::kPrintedLayers),
               share(commands::kPaperDifferingDegrees, commands::kPrintedLayers), "-"});
  return table.text() + "\n";
}

}  // namespace

std::string grid_text(const VerifiedResults& results, const RunFigures& figures) {
  std::string text = fmt::format(
      "{} layers of {}: mean speedup over tutel of forward + backward, and layers run with r_f != r_b\n"
      "(simulated: the same plans of the same layers, by the fit; degrees are the tuner's, ran as such)\n\n{}\n",
      figures.layers, results.grid.name, speedup_table(results).text());
  text += degrees_text(results, figures);
  return figures.left_out_reasons.empty() ? text + "every run of every layer is in these means\n" : text;
}

AnswerPart part_of(const VerifiedResults& results, const RunFigures& figures) {
  AnswerPart part{"SUMMARY", {}, {}};
  const Summaries summaries = commands::summarise(results.rows, results.schedules);
  part.table = (results.whole_grid ? speedup_table(results) : summary_table(results, summaries, figures.layers)).rows();
  if (std::string fastest = fastest_text(summaries); !fastest.empty()) part.items.push_back(std::move(fastest));
  if (figures.is_doubtful()) part.items.push_back(doubt_text(figures));
  return part;
}

}  // namespace moe::tuner
