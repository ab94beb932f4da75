#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <limits>
#include <map>
#include <set>

#include "moe/base/shell_word.h"
#include "moe/base/table.h"
#include "moe/base/units.h"
#include "tuner/answer/answer.h"
#include "tuner/answer/framework_settings.h"
#include "verbs/frameworks.h"
#include "verbs/sweep.h"

namespace moe::tuner {
namespace {

constexpr size_t kKinds = 4;     // of tasks, that are named
constexpr size_t kWidest = 120;  // columns of a line

std::string named(const ChosenModel& chosen) {
  std::string text = describe(chosen.model.shape.layer);
  const ModelShape& model = chosen.model;
  if (model.layers > 1) text = describe_layers(model.layers, model.dense, model.shape.layer);
  if (!chosen.name.empty()) text = fmt::format("{}, {}", chosen.name, text);
  return text;
}

std::string fit_text(const FittedProfile& fitted) {
  std::vector<std::string_view> good, weak, unusable;
  for (const FittedRow& row : fitted.rows)
    (row.good() ? good : row.unusable.empty() ? weak : unusable).push_back(row.what);
  std::string text = fmt::format("fit: {} row{} GOOD", good.size(), good.size() == 1 ? "" : "s");
  if (!weak.empty()) text += fmt::format("; WEAK: {}", some_names(weak));
  if (!unusable.empty()) text += fmt::format("; UNUSABLE: {}", some_names(unusable));
  return text + '\n';
}

std::string why_text(const RankedSchedule& row) {
  std::vector<std::pair<double, LaneKind>> lanes;
  for (const auto& [kind, seconds] : row.busy_s)
    if (seconds > 0) lanes.emplace_back(seconds, kind);
  std::ranges::sort(lanes, std::greater{});
  std::string text;
  for (const auto& [seconds, kind] : lanes)
    text += fmt::format("{}{} works {:.0f} %", text.empty() ? "" : ", ", name_of(kind), 100 * seconds / row.pass_s());
  text += fmt::format(" of the time; computation hides {:.0f} % of communication\n       critical path: ",
                      100 * row.hidden);
  for (size_t i = 0; i < std::min(kKinds, row.critical.size()); ++i)
    text += fmt::format("{}{} {:.0f} %", i == 0 ? "" : ", ", row.critical[i].first, 100 * row.critical[i].second);
  if (row.expert_sums_s > 0)
    text +=
        fmt::format("\n       the prediction includes {:.3f} ms that sum gradients of replicated experts; runs do not",
                    1e3 * row.expert_sums_s);
  return text;
}

// The next one that takes another time: of two names for one plan neither is a risk.
const RankedSchedule* runner_up(const Answer& answer, const RankedSchedule& best) {
  for (const RankedSchedule& row : answer.ranking)
    if (row.refused.empty() && row.total_s() > best.total_s() && !same_time(row.total_s(), best.total_s())) return &row;
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
  const auto verdict = [&](bool safe) { return worst > kFarOff ? "no" : safe ? "yes" : "within the error"; };
  const std::string off = fmt::format("predictions are up to {:.1f} % off", 100 * worst);
  const CaseRecord *lost = trial_of(answer, first.schedule->name), *won = trial_of(answer, use.schedule->name);
  if (lost != nullptr && !ran_well(*lost))
    return fmt::format("no: its run was {}; {}; {}", name_of(lost->status), behind, off);
  if (&use == &first) return fmt::format("{}: {}; {}", verdict(second == nullptr || margin > worst), behind, off);
  const double slower = expected_s(answer, first, *lost) / expected_s(answer, use, *won) - 1;
  return fmt::format("{}: {} was predicted best and ran {:.1f} % slower; {}", verdict(slower > worst),
                     first.schedule->name, 100 * slower, off);
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

std::string set_text(const Answer& answer, const RankedSchedule& use) {
  const std::vector<FrameworkSettings> settings = settings_of(answer, use, frameworks());
  if (settings.empty()) return "no framework runs any schedule that can be used here";
  std::string text;
  std::vector<std::string_view> formats;
  for (const auto& [row, names, of_frameworks] : settings) {
    formats.insert(formats.end(), of_frameworks.begin(), of_frameworks.end());
    const CaseRecord *own = trial_of(answer, row->schedule->name), *best = trial_of(answer, use.schedule->name);
    const bool both_ran = row != &use && own && best && ran_well(*own) && ran_well(*best);
    const double slower = both_ran ? expected_s(answer, *row, *own) / expected_s(answer, use, *best) - 1
                                   : row->total_s() / use.total_s() - 1;
    text += fmt::format(
        "{}{}: {} r_f {} r_b {} ({})", text.empty() ? "" : "\n       ", names, row->schedule->name, row->degree_forward,
        degree_range(row->degrees_backward.first, row->degrees_backward.second),
        std::abs(slower) < 5e-4 ? "as fast" : fmt::format("{:+.1f} %{}", 100 * slower, both_ran ? ", run" : ""));
  }
  const bool two_layers = std::ranges::any_of(answer.trials, &Trial::current);  // in the records
  return fmt::format("{}\n       all settings: ./moetune export {} {}{} (formats: {})", text, formats.front(),
                     answer.records_path, two_layers ? fmt::format(" --only {}", shell_word(answer.name)) : "",
                     fmt::join(formats, ", "));
}

// Names of schedules whose plans take the same time.
std::string same_text(const Answer& answer, const RankedSchedule& use) {
  std::vector<std::string_view> names;
  for (const RankedSchedule& row : answer.ranking)
    if (&row != &use && row.refused.empty() && same_time(row.total_s(), use.total_s()))
      names.push_back(row.schedule->name);
  return names.empty() ? "" : fmt::format(" (the same: {})", some_names(names));
}

// One line a kind.
std::string notes_text(const std::set<std::string>& notes) {
  std::map<std::string_view, std::vector<std::string_view>> by_kind;
  for (const std::string_view note : notes) {
    const bool weak = note.starts_with(kWeakRow);
    const std::string_view kind = weak ? "weak rows" : note.substr(0, note.find(':'));
    const std::string_view what = note.substr(std::min(note.size(), weak ? kWeakRow.size() : kind.size() + 2));
    by_kind[kind].push_back(weak ? what.substr(0, what.find(": ")) : what);
  }
  std::string text;
  for (const auto& [kind, all] : by_kind) {
    const std::string line = fmt::format("prices: {}: {}", kind, some_names(all));
    if (line.size() <= kWidest)
      text += line + '\n';
    else
      for (const std::string_view one : all) text += fmt::format("prices: {}: {}\n", kind, one);
  }
  return text;
}

std::string use_text(const Answer& answer, const RankedSchedule& use) {
  std::string text = std::string(use.schedule->name);
  if (use.variant != nullptr && use.variant != use.schedule) text += fmt::format(" (= {})", use.variant->name);
  text += same_text(answer, use);
  text += fmt::format(", r_f {}, r_b {}", use.degree_forward,
                      degree_range(use.degrees_backward.first, use.degrees_backward.second));
  if (use.gar_in_moe_bytes > 0)
    text +=
        fmt::format(", {} of gradients inside the MoE part", human_bytes(static_cast<double>(use.gar_in_moe_bytes)));
  text += fmt::format(": {:.3f} ms predicted", 1e3 * use.total_s());
  const CaseRecord* trial = trial_of(answer, use.schedule->name);
  const bool whole = ran_whole(answer);
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
    const bool kept = is_baseline(row.schedule->name) || trial_of(answer, row.schedule->name) != nullptr;
    if (row.refused.empty() && (left-- > 0 || kept)) rows.push_back({&row, false});
  }
  if (answer.current) rows.push_back({&*answer.current, true});
  return rows;
}

// Returns what no schedule that can be used can beat.
double least_bound_s(const Answer& answer) {
  double least_s = std::numeric_limits<double>::infinity();
  for (const RankedSchedule& row : answer.ranking)
    if (row.refused.empty()) least_s = std::min(least_s, row.bound_s);
  return least_s;
}

std::string ranking_text(const Answer& answer) {
  const RankedSchedule* tutel = row_of(answer, kBaselines.front());
  const bool whole = ran_whole(answer);
  std::vector<std::string> header{"schedule", "r_f", "r_b", "predicted ms"};
  if (!answer.trials.empty()) {
    header.push_back(whole ? "run ms" : fmt::format("run ms, {} layers", answer.trial_layers));
    header.emplace_back("error");
  }
  header.insert(header.end(), {"over tutel", "of the bound", "of its own", "a rank needs"});
  Table table(header);
  const std::vector<Shown> rows = shown_rows(answer);
  size_t shown = 0;
  for (const auto& [row, current] : rows) {
    shown += current ? 0 : 1;
    std::string name = std::string(row->schedule->name) + (current ? " (yours)" : "");
    if (!row->refused.empty()) continue;
    std::vector<std::string> cells{name, fmt::format("{}", row->degree_forward),
                                   degree_range(row->degrees_backward.first, row->degrees_backward.second),
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
    for (const double bound_s : {least_bound_s(answer), row->bound_s})
      cells.push_back(fmt::format("{:.1f} %", 100 * bound_s / row->total_s()));
    cells.push_back(human_bytes(row->memory_bytes));
    table.add(cells);
  }
  std::string text = table.text();
  const auto refused = std::ranges::count_if(answer.ranking, [](const auto& row) { return !row.refused.empty(); });
  const auto hidden = answer.ranking.size() - shown - static_cast<size_t>(refused);
  if (hidden > 0) text += fmt::format("  and {} slower (--top N)\n", hidden);
  if (refused > 0)
    text += fmt::format("  and {} that can't be used here:\n    {}\n", refused,
                        fmt::join(refusals_of(answer.ranking), "\n    "));
  if (answer.current && !answer.current->refused.empty())
    text += fmt::format("  {} (yours): {}\n", answer.current->schedule->name, answer.current->refused);
  return text;
}

}  // namespace

std::string text_of(const Answer& answer) {
  const RankedSchedule& use = recommended(answer);
  const Profile& profile = *answer.profile;
  const std::string& here = answer.chosen->on_cluster;
  std::string text = fmt::format("\n{}\n{}{}\n{}; a rank needs {}{}", named(*answer.chosen),
                                 here.empty() ? "" : fmt::format("on {}: {}\n", answer.cluster, here),
                                 describe_shape(answer.chosen->model), answer.place, human_bytes(use.memory_bytes),
                                 profile.memory_bytes ? fmt::format(" of {}", human_bytes(*profile.memory_bytes)) : "");
  text += answer.emulated ? "; every run below is of an emulation\n" : "\n";
  if (answer.fitted != nullptr) text += fit_text(*answer.fitted);
  text += notes_text(use.notes);
  if (answer.shapes != nullptr) text += fmt::format("\n{}", text_of(*answer.shapes, answer.top));
  text += fmt::format("\nUSE    {}\n{}\n", use_text(answer, use), ranking_text(answer));
  text += fmt::format("WHY    {}\n", why_text(use));
  text += fmt::format("SAFE?  {}\n", safe_text(answer, use));
  if (const std::string far = far_off_text(answer); !far.empty()) text += fmt::format("       {}\n", far);
  if (!answer.neighbours.empty()) text += fmt::format("       degrees one step off: {}\n", neighbours_text(answer));
  text += fmt::format("SET IT {}\n", set_text(answer, use));
  text += fmt::format("NEXT   {}\n", answer.next);
  if (!answer.records_path.empty()) text += fmt::format("\nrecords  {}\n", answer.records_path);
  if (!answer.profile_path.empty()) text += fmt::format("profile  {}\n", answer.profile_path);
  if (!answer.trace_path.empty()) text += fmt::format("timeline {} (open it in ui.perfetto.dev)\n", answer.trace_path);
  return text;
}

}  // namespace moe::tuner
