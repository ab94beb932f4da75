#include "tuner/answer/answer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "moe/base/check.h"
#include "moe/base/registry.h"
#include "moe/base/table.h"
#include "moe/base/units.h"

namespace moe::tuner {
namespace {

constexpr std::array<std::string_view, 2> kBaselines{"tutel", "ds-moe"};
constexpr size_t kKinds = 4;  // of tasks, that are named

bool ran_well(const CaseRecord& record) { return record.status == CaseStatus::ok && record.summary.has("total_s"); }
double run_s(const CaseRecord& record) { return record.summary.number("total_s", record.key); }
double predicted_s(const CaseRecord& record) { return record.prediction.number("total_s", record.key); }
double error_of(const CaseRecord& record) { return run_s(record) / predicted_s(record) - 1; }

const CaseRecord* trial_of(const Answer& answer, std::string_view schedule, bool current = false) {
  for (const Trial& trial : answer.trials)
    if (trial.current == current && trial.record.schedule == schedule) return &trial.record;
  return nullptr;
}

const RankedSchedule* row_of(const Answer& answer, std::string_view schedule) {
  const auto row = std::ranges::find(answer.ranking, schedule, [](const auto& r) { return r.schedule->name; });
  return row == answer.ranking.end() || !row->refused.empty() ? nullptr : &*row;
}

std::string degrees_text(const std::pair<int, int>& degrees) {
  return degrees.first == degrees.second ? fmt::format("{}", degrees.first)
                                         : fmt::format("{}-{}", degrees.first, degrees.second);
}

std::string named(const ChosenModel& chosen) {
  std::string text = describe(chosen.model.shape.layer);
  if (chosen.model.layers > 1) text = fmt::format("{} layers of {}", chosen.model.layers, text);
  if (!chosen.name.empty()) text = fmt::format("{}, {}", chosen.name, text);
  return text;
}

std::string fit_text(const FittedProfile& fitted) {
  int good = 0;
  std::string weak, unusable;
  for (const FittedRow& row : fitted.rows) {
    std::string& names = row.unusable.empty() ? weak : unusable;
    if (row.unusable.empty() && row.fit.weak.empty())
      ++good;
    else
      names += (names.empty() ? "" : ", ") + row.what;
  }
  std::string text = fmt::format("fit: {} row{} GOOD", good, good == 1 ? "" : "s");
  if (!weak.empty()) text += fmt::format("; WEAK: {}", weak);
  if (!unusable.empty()) text += fmt::format("; UNUSABLE: {}", unusable);
  return text + '\n';
}

double total_of(const RankedSchedule& row, LaneKind kind) {
  const auto busy = row.busy_s.find(kind);
  return busy == row.busy_s.end() ? 0 : busy->second;
}

// What is not computation is exposed communication on one stage, which has no bubbles.
std::string why_text(const RankedSchedule& row, int stages) {
  std::vector<std::pair<double, LaneKind>> lanes;
  double communication = 0;
  for (const auto& [kind, seconds] : row.busy_s) {
    if (seconds > 0) lanes.emplace_back(seconds, kind);
    if (kind != LaneKind::compute) communication += seconds;
  }
  std::ranges::sort(lanes, std::greater{});
  std::string text;
  for (const auto& [seconds, kind] : lanes)
    text += fmt::format("{}{} works {:.0f} %", text.empty() ? "" : ", ", name_of(kind), 100 * seconds / row.total_s());
  text += " of the time";
  if (stages == 1 && communication > 0) {
    const double exposed = row.total_s() - total_of(row, LaneKind::compute);
    text +=
        fmt::format("; {:.0f} % of communication is hidden", 100 * std::clamp(1 - exposed / communication, 0.0, 1.0));
  }
  text += "\n       critical path: ";
  for (size_t i = 0; i < std::min(kKinds, row.critical.size()); ++i)
    text += fmt::format("{}{} {:.0f} %", i == 0 ? "" : ", ", row.critical[i].first, 100 * row.critical[i].second);
  return text;
}

double worst_error(const Answer& answer) {
  double worst = 0;
  for (const Trial& trial : answer.trials)
    if (ran_well(trial.record)) worst = std::max(worst, std::abs(error_of(trial.record)));
  return worst;
}

// The next one that takes another time: of two names for one plan neither is a risk.
const RankedSchedule* runner_up(const Answer& answer, const RankedSchedule& best) {
  for (const RankedSchedule& row : answer.ranking)
    if (row.refused.empty() && row.total_s() > best.total_s() * (1 + 1e-6)) return &row;
  return nullptr;
}

std::string safe_text(const Answer& answer, const RankedSchedule& use) {
  const RankedSchedule& first = answer.ranking.front();
  const RankedSchedule* second = runner_up(answer, first);
  const double margin = second ? second->total_s() / first.total_s() - 1 : 0;
  const std::string behind =
      second ? fmt::format("{}, next, is predicted {:.1f} % slower", second->schedule->name, 100 * margin)
             : "no other schedule takes another time";
  if (!answer.no_trials.empty()) return fmt::format("{}; {}", behind, answer.no_trials);
  const bool any_ran = std::ranges::any_of(answer.trials, [](const Trial& t) { return ran_well(t.record); });
  if (!any_ran) return fmt::format("{}; no run kept its pace or ended, so nothing checks the predictions", behind);
  const double worst = worst_error(answer);
  if (&use != &first) {
    const CaseRecord *won = trial_of(answer, use.schedule->name), *lost = trial_of(answer, first.schedule->name);
    const std::string by = lost != nullptr && ran_well(*lost)
                               ? fmt::format("ran {:.1f} % slower", 100 * (run_s(*lost) / run_s(*won) - 1))
                               : "did not run";
    return fmt::format("{} was predicted best and {}; predictions are up to {:.1f} % off", first.schedule->name, by,
                       100 * worst);
  }
  return fmt::format("{}: {}; predictions of the runs are up to {:.1f} % off",
                     second == nullptr || margin > worst ? "yes" : "within the error", behind, 100 * worst);
}

std::string neighbours_text(const Answer& answer) {
  std::string text;
  for (const Neighbour& n : answer.neighbours)
    text += fmt::format("{}{} {} {:+.1f} %", text.empty() ? "" : ", ",
                        !n.phase                    ? "r"
                        : n.phase == Phase::forward ? "r_f"
                                                    : "r_b",
                        n.degree, 100 * n.slower);
  return text;
}

std::string use_text(const Answer& answer, const RankedSchedule& use) {
  std::string text = std::string(use.schedule->name);
  if (use.variant != nullptr && use.variant != use.schedule) text += fmt::format(" (= {})", use.variant->name);
  text += fmt::format(", r_f {}, r_b {}", use.degree_forward, degrees_text(use.degrees_backward));
  if (use.gar_in_moe_bytes > 0)
    text +=
        fmt::format(", {} of gradients inside the MoE part", human_bytes(static_cast<double>(use.gar_in_moe_bytes)));
  text += fmt::format(": {:.3f} ms predicted", 1e3 * use.total_s());
  const CaseRecord* trial = trial_of(answer, use.schedule->name);
  const bool whole = answer.trial_layers == answer.chosen->model.layers;
  if (trial != nullptr && ran_well(*trial) && whole) text += fmt::format(", {:.3f} ms run", 1e3 * run_s(*trial));
  if (trial != nullptr && ran_well(*trial) && !whole)
    text += fmt::format(" ({} of its layers ran {:+.1f} % off)", answer.trial_layers, 100 * error_of(*trial));
  return text;
}

struct Shown {
  const RankedSchedule* row;
  bool current;
};

std::vector<Shown> shown_rows(const Answer& answer) {
  std::vector<Shown> rows;
  int left = answer.top;
  for (const RankedSchedule& row : answer.ranking) {
    const bool kept = std::ranges::find(kBaselines, row.schedule->name) != kBaselines.end() ||
                      trial_of(answer, row.schedule->name) != nullptr;
    if (row.refused.empty() && (left-- > 0 || kept)) rows.push_back({&row, false});
  }
  if (answer.current) rows.push_back({&*answer.current, true});
  return rows;
}

std::string ranking_text(const Answer& answer) {
  const RankedSchedule* tutel = row_of(answer, kBaselines.front());
  const bool whole = answer.trial_layers == answer.chosen->model.layers;
  std::vector<std::string> header{"schedule", "r_f", "r_b", "predicted ms"};
  if (!answer.trials.empty()) {
    header.push_back(whole ? "run ms" : fmt::format("run ms, {} layers", answer.trial_layers));
    header.emplace_back("error");
  }
  header.insert(header.end(), {"over tutel", "of the bound", "a rank needs"});
  Table table(header);
  const std::vector<Shown> rows = shown_rows(answer);
  size_t shown = 0;
  for (const auto& [row, current] : rows) {
    shown += current ? 0 : 1;
    std::string name = std::string(row->schedule->name) + (current ? " (yours)" : "");
    if (!row->refused.empty()) continue;
    std::vector<std::string> cells{name, fmt::format("{}", row->degree_forward), degrees_text(row->degrees_backward),
                                   fmt::format("{:.3f}", 1e3 * row->total_s())};
    if (!answer.trials.empty()) {
      const CaseRecord* trial = trial_of(answer, row->schedule->name, current);
      const bool well = trial != nullptr && ran_well(*trial);
      cells.push_back(well ? fmt::format("{:.3f}", 1e3 * run_s(*trial)) : "-");
      cells.push_back(well     ? fmt::format("{:+.2f} %", 100 * error_of(*trial))
                      : !trial ? "-"
                               : std::string(name_of(trial->status)));
    }
    cells.push_back(tutel ? fmt::format("{:.3f}x", tutel->total_s() / row->total_s()) : "-");
    cells.push_back(fmt::format("{:.1f} %", 100 * row->bound_s / row->total_s()));
    cells.push_back(human_bytes(row->memory_bytes));
    table.add(cells);
  }
  std::string text = table.text();
  const auto refused = std::ranges::count_if(answer.ranking, [](const auto& row) { return !row.refused.empty(); });
  const auto hidden = answer.ranking.size() - shown - static_cast<size_t>(refused);
  if (hidden > 0) text += fmt::format("  and {} slower (--top N)\n", hidden);
  if (refused > 0)
    text += fmt::format("  and {} that can't be used here: {}\n", refused, answer.ranking.back().refused);
  if (answer.current && !answer.current->refused.empty())
    text += fmt::format("  {} (yours): {}\n", answer.current->schedule->name, answer.current->refused);
  return text;
}

Json json_of(const RankedSchedule& row) {
  Json json{{"schedule", row.schedule->name}, {"status", row.refused.empty() ? "ok" : "unsupported"}};
  if (!row.refused.empty()) {
    json["reason"] = row.refused;
    return json;
  }
  json["variant"] = row.variant ? Json(row.variant->name) : Json(nullptr);
  json["degree_forward"] = row.degree_forward;
  json["degree_backward_least"] = row.degrees_backward.first;
  json["degree_backward_most"] = row.degrees_backward.second;
  json["gar_in_moe_bytes"] = row.gar_in_moe_bytes;
  json["forward_s"] = row.forward_s;
  json["backward_s"] = row.backward_s;
  json["total_s"] = row.total_s();
  json["bound_s"] = row.bound_s;
  json["gap"] = row.gap;
  json["memory_bytes"] = row.memory_bytes;
  json["critical"] = Json::object();
  for (const auto& [kind, share] : row.critical) json["critical"][kind] = share;
  return json;
}

Json json_of(const Trial& trial) {
  const CaseRecord& record = trial.record;
  Json json{{"schedule", record.schedule},
            {"current", trial.current},
            {"status", name_of(record.status)},
            {"degree_forward", record.degree_forward},
            {"degree_backward", record.degree_backward},
            {"predicted_s", nullptr},
            {"measured_s", nullptr}};
  if (record.prediction.has("total_s")) json["predicted_s"] = predicted_s(record);
  if (record.summary.has("total_s")) json["measured_s"] = run_s(record);
  if (!record.reason.empty()) json["reason"] = record.reason;
  return json;
}

}  // namespace

CurrentSchedule current_from(const std::string& text) {
  CurrentSchedule current;
  const size_t colon = text.find(':');
  current.schedule = &find_named(schedules(), text.substr(0, colon), "--current");
  if (colon == std::string::npos) return current;
  const std::string degrees = text.substr(colon + 1);
  const size_t second = degrees.find(':');
  const auto whole = [&](std::string_view word) {
    int value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    require<BadInput>(error == std::errc{} && end == word.data() + word.size() && value >= 1 && value <= 4096,
                      "--current: found '{}', expected SCHEDULE, SCHEDULE:R or SCHEDULE:R_F:R_B", text);
    return value;
  };
  current.degree_forward = whole(std::string_view(degrees).substr(0, second));
  current.degree_backward =
      second == std::string::npos ? current.degree_forward : whole(std::string_view(degrees).substr(second + 1));
  return current;
}

const RankedSchedule& recommended(const Answer& answer) {
  const RankedSchedule& first = answer.ranking.front();
  require<Unsupported>(first.refused.empty(), "{}: {}{}", first.schedule->name, first.refused,
                       answer.shapes == nullptr ? "; --shape auto looks for groups that can" : "");
  const CaseRecord* fastest = nullptr;
  int well = 0;
  for (const Trial& trial : answer.trials) {
    if (trial.current || !ran_well(trial.record)) continue;
    ++well;
    if (fastest == nullptr || run_s(trial.record) < run_s(*fastest)) fastest = &trial.record;
  }
  const RankedSchedule* row = well > 1 ? row_of(answer, fastest->schedule) : nullptr;
  return row != nullptr ? *row : first;
}

std::string text_of(const Answer& answer) {
  const RankedSchedule& use = recommended(answer);
  const Profile& profile = *answer.profile;
  std::string text = fmt::format("\n{}\n{} on {}\na rank needs {}{}", named(*answer.chosen),
                                 describe_shape(answer.chosen->model), answer.place, human_bytes(use.memory_bytes),
                                 profile.memory_bytes ? fmt::format(" of {}", human_bytes(*profile.memory_bytes)) : "");
  text += answer.emulated ? "; every run below is of an emulation\n" : "\n";
  if (answer.fitted != nullptr) text += fit_text(*answer.fitted);
  for (const std::string& note : use.notes) text += fmt::format("prices: {}\n", note);
  if (answer.shapes != nullptr) text += fmt::format("\n{}", text_of(*answer.shapes, answer.top));
  text += fmt::format("\nUSE    {}\n\n{}\n", use_text(answer, use), ranking_text(answer));
  text += fmt::format("WHY    {}\n", why_text(use, answer.chosen->model.shape.parallel.pp));
  text += fmt::format("SAFE?  {}\n", safe_text(answer, use));
  if (!answer.neighbours.empty()) text += fmt::format("       degrees one step off: {}\n", neighbours_text(answer));
  text += fmt::format("NEXT   {}\n", answer.next);
  if (!answer.records_path.empty()) text += fmt::format("\nrecords  {}\n", answer.records_path);
  if (!answer.profile_path.empty()) text += fmt::format("profile  {}\n", answer.profile_path);
  if (!answer.trace_path.empty()) text += fmt::format("timeline {} (open it in ui.perfetto.dev)\n", answer.trace_path);
  return text;
}

Json json_of(const Answer& answer) {
  const RankedSchedule& use = recommended(answer);
  Json ranking = Json::array(), steps = Json::array(), trials = Json::array();
  for (const RankedSchedule& row : answer.ranking) ranking.push_back(json_of(row));
  for (const Trial& trial : answer.trials) trials.push_back(json_of(trial));
  for (const Neighbour& n : answer.neighbours)
    steps.push_back(
        {{"phase", n.phase ? Json(name_of(*n.phase)) : Json("both")}, {"degree", n.degree}, {"slower", n.slower}});
  const ModelShape& model = answer.chosen->model;
  return {{"cluster", answer.cluster},
          {"emulated", answer.emulated},
          {"model", answer.chosen->name},
          {"layers", model.layers},
          {"micro_batches", model.micro_batches},
          {"layer", to_json(model.shape)},
          {"shapes", answer.shapes ? json_of(*answer.shapes) : Json(nullptr)},
          {"use", json_of(use)},
          {"notes", use.notes},
          {"ranking", ranking},
          {"current", answer.current ? json_of(*answer.current) : Json(nullptr)},
          {"neighbours", steps},
          {"trial_layers", answer.trial_layers},
          {"trials", trials},
          {"records", answer.records_path},
          {"profile", answer.profile_path},
          {"trace", answer.trace_path}};
}

}  // namespace moe::tuner
