#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <iterator>
#include <map>
#include <set>

#include "moe/base/shell_word.h"
#include "moe/base/units.h"
#include "tuner/answer/framework_settings.h"
#include "tuner/answer/text_parts.h"
#include "verbs/frameworks.h"
#include "verbs/sweep.h"

namespace moe::tuner {
namespace {

constexpr size_t kKinds = 4;        // of tasks, that are named
constexpr size_t kFewKinds = 2;     // likewise, where there is much else to say
constexpr size_t kWidestRow = 120;  // columns of a line
constexpr int kMostLines = 25;      // of an answer without --all or --top
constexpr std::string_view kPrices = "prices: ";

std::string named(const verbs::ChosenModel& chosen) {
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
  std::string text = fmt::format("fit: {} GOOD", counted(good.size(), "row"));
  if (!weak.empty()) text += fmt::format("; WEAK: {}", some_names(weak));
  if (!unusable.empty()) text += fmt::format("; UNUSABLE: {}", some_names(unusable));
  return text + '\n';
}

std::string why_text(const RankedSchedule& row, bool tight) {
  std::vector<std::pair<double, LaneKind>> lanes;
  for (const auto& [kind, seconds] : row.busy_s)
    if (seconds > 0) lanes.emplace_back(seconds, kind);
  std::ranges::sort(lanes, std::greater{});
  std::string working, path;
  for (const auto& [seconds, kind] : lanes)
    working +=
        fmt::format("{}{} works {:.0f} %", working.empty() ? "" : ", ", name_of(kind), 100 * seconds / row.pass_s());
  for (size_t i = 0; i < std::min(tight ? kFewKinds : kKinds, row.critical.size()); ++i) {
    std::string kind = row.critical[i].first;
    std::ranges::replace(kind, '_', ' ');
    path += fmt::format("{}{} {:.0f} %", i == 0 ? "" : ", ", kind, 100 * row.critical[i].second);
  }
  std::vector<std::string> items{fmt::format("{} of the time", working),
                                 fmt::format("computation hides {:.0f} % of communication", 100 * row.hidden),
                                 fmt::format("critical path: {}", path)};
  if (row.expert_sums_s > 0)
    items.push_back(fmt::format("{:.3f} ms sum replicated experts' gradients (not run)", 1e3 * row.expert_sums_s));
  return packed_lines("WHY    ", items);
}

// Returns the next row that takes another time: of two names for one plan neither is a risk.
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
  const std::vector<FrameworkSettings> settings = settings_of(answer, use, verbs::frameworks());
  if (settings.empty()) return "SET IT no framework runs any schedule that can be used here\n";
  std::vector<std::string> items;
  std::vector<std::string_view> formats;
  for (const auto& [row, names, of_frameworks] : settings) {
    formats.insert(formats.end(), of_frameworks.begin(), of_frameworks.end());
    const CaseRecord *own = trial_of(answer, row->schedule->name), *best = trial_of(answer, use.schedule->name);
    const bool both_ran = row != &use && own && best && ran_well(*own) && ran_well(*best);
    const double slower = both_ran ? expected_s(answer, *row, *own) / expected_s(answer, use, *best) - 1
                                   : row->total_s() / use.total_s() - 1;
    items.push_back(fmt::format(
        "{}: {} r_f {} r_b {} ({})", names, row->schedule->name, row->degree_forward,
        verbs::degree_range(row->degrees_backward.first, row->degrees_backward.second),
        std::abs(slower) < 5e-4 ? "as fast" : fmt::format("{:+.1f} %{}", 100 * slower, both_ran ? ", run" : "")));
  }
  const ModelShape& model = answer.chosen->model;
  if (std::ranges::find(formats, "megatron") != formats.end())
    std::ranges::move(verbs::megatron_refusals(model.shape, model.layers), std::back_inserter(items));
  const bool two_layers = std::ranges::any_of(answer.trials, &Trial::current);  // in the records
  return packed_lines("SET IT ", items) +
         fmt::format("       all settings: ./moetune export {} {}{} (formats: {})\n", formats.front(),
                     answer.records_path, two_layers ? fmt::format(" --only {}", shell_word(answer.name)) : "",
                     fmt::join(formats, ", "));
}

// Names the schedules whose plans take the same time.
std::string same_text(const Answer& answer, const RankedSchedule& use) {
  std::vector<std::string_view> names;
  for (const RankedSchedule& row : answer.ranking)
    if (&row != &use && row.refused.empty() && same_time(row.total_s(), use.total_s()))
      names.push_back(row.schedule->name);
  return names.empty() ? "" : fmt::format(" (the same: {})", some_names(names));
}

// Returns one item for each kind of note; with `all`, one for each note of a kind that would be too long.
std::string notes_text(const std::set<std::string>& notes, bool all) {
  std::map<std::string_view, std::vector<std::string_view>> by_kind;
  for (const std::string_view note : notes) {
    const bool weak = note.starts_with(kWeakRow);
    const std::string_view kind = weak ? "weak rows" : note.substr(0, note.find(':'));
    const std::string_view what = note.substr(std::min(note.size(), weak ? kWeakRow.size() : kind.size() + 2));
    by_kind[kind].push_back(weak ? what.substr(0, what.find(": ")) : what);
  }
  std::vector<std::string> items;
  for (const auto& [kind, whole] : by_kind) {
    items.push_back(fmt::format("{}: {}", kind, some_names(whole)));
    if (kPrices.size() + items.back().size() <= kWidestRow) continue;
    if (!all) {
      items.back() = fmt::format("{}: {}{}", kind, whole.front(),
                                 whole.size() > 1 ? fmt::format(" and {} more", whole.size() - 1) : "");
      continue;
    }
    items.pop_back();
    for (const std::string_view one : whole) items.push_back(fmt::format("{}: {}", kind, one));
  }
  if (items.empty()) return "";
  if (!all) return packed_lines(kPrices, items);
  std::string text;
  for (const std::string& item : items) text += fmt::format("{}{}\n", kPrices, item);
  return text;
}

std::string use_text(const Answer& answer, const RankedSchedule& use) {
  std::string text = std::string(use.schedule->name);
  if (use.variant != nullptr && use.variant != use.schedule) text += fmt::format(" (= {})", use.variant->name);
  text += same_text(answer, use);
  text += fmt::format(", r_f {}, r_b {}", use.degree_forward,
                      verbs::degree_range(use.degrees_backward.first, use.degrees_backward.second));
  if (use.gar_in_moe_bytes > 0)
    text +=
        fmt::format(", {} of gradients inside the MoE part", human_bytes(static_cast<double>(use.gar_in_moe_bytes)));
  text += fmt::format(": {:.3f} ms predicted", 1e3 * use.total_s());
  const CaseRecord* trial = trial_of(answer, use.schedule->name);
  const bool whole = ran_whole(answer);
  if (trial != nullptr && ran_well(*trial) && whole && !ran_in_part(use, *trial))
    text += fmt::format(", {:.3f} ms run", 1e3 * run_s(*trial));
  if (trial != nullptr && ran_well(*trial) && !whole)
    text += fmt::format(" ({} of its layers ran {:+.1f} % off)", answer.trial_layers, 100 * error_of(*trial));
  return text;
}

// Says which schedule is faster than the preferred one; empty: none is, or a run or the search for a shape decided.
std::string preferred_text(const Answer& answer, const RankedSchedule& use) {
  if (answer.shapes != nullptr || &use != &answer.ranking.front()) return "";
  const RankedSchedule* fastest = &use;
  for (const RankedSchedule& row : answer.ranking)
    if (row.refused.empty() && row.total_s() < fastest->total_s()) fastest = &row;
  if (same_time(fastest->total_s(), use.total_s())) return "";
  return preference_text(
      use, *fastest,
      fmt::format("{} r_f {} r_b {}", fastest->schedule->name, fastest->degree_forward,
                  verbs::degree_range(fastest->degrees_backward.first, fastest->degrees_backward.second)),
      use.total_s() / fastest->total_s() - 1);
}

// Says which layers or model, where, and what prices them.
std::string question_text(const Answer& answer, const RankedSchedule& use, const Detail& detail) {
  const std::optional<double>& has = answer.profile->memory_bytes;
  const std::string& here = answer.chosen->on_cluster;
  std::string text = fmt::format("{}{}\n", detail.all ? "\n" : "", named(*answer.chosen));
  if (!here.empty()) text += fmt::format("on {}: {}\n", answer.cluster, here);
  if (detail.all || answer.shapes == nullptr) text += describe_shape(answer.chosen->model) + '\n';
  text += fmt::format("{}; a rank needs {}{}", answer.place, human_bytes(use.memory_bytes),
                      has ? fmt::format(" of {}", human_bytes(*has)) : "");
  text += answer.emulated ? "; every run below is of an emulation\n" : "\n";
  std::string fit = answer.fitted == nullptr ? "" : fit_text(*answer.fitted);
  if (!detail.tight) return text + fit + notes_text(use.notes, detail.all);
  // The three parts that say least.
  if (!fit.empty()) fit.back() = ';';
  return text + fmt::format("{}{}prices: {} notes on them; {} schedules in all (--all)\n", fit, fit.empty() ? "" : " ",
                            use.notes.size(), answer.ranking.size());
}

std::string safety_text(const Answer& answer, const RankedSchedule& use, bool tight) {
  std::string text = fmt::format("SAFE?  {}\n", safe_text(answer, use));
  if (const std::string far = far_off_text(answer); !far.empty() && !tight) text += fmt::format("       {}\n", far);
  if (!answer.neighbours.empty()) text += fmt::format("       degrees one step off: {}\n", neighbours_text(answer));
  return text;
}

// Names the files; `all` names the records too, which the line of all settings has else.
std::string files_text(const Answer& answer, bool all) {
  std::vector<std::string> files;
  const bool others = !answer.profile_path.empty() || !answer.trace_path.empty();
  if (!answer.records_path.empty() && (all || others)) files.push_back("records " + answer.records_path);
  if (!answer.profile_path.empty()) files.push_back("profile " + answer.profile_path);
  if (!answer.trace_path.empty()) files.push_back(fmt::format("timeline {} (ui.perfetto.dev)", answer.trace_path));
  return files.empty() ? "" : packed_lines("FILES  ", files);
}

std::string text_with(const Answer& answer, const Detail& detail) {
  const RankedSchedule& use = recommended(answer);
  const std::string blank = detail.blanks ? "\n" : "";
  std::string text = question_text(answer, use, detail) + blank;
  if (answer.shapes != nullptr)
    text += detail.all ? text_of(*answer.shapes, detail.rows) + '\n' : brief_text_of(*answer.shapes, detail.tight);
  text += fmt::format("USE    {}\n{}{}{}", use_text(answer, use), preferred_text(answer, use),
                      ranking_text(answer, detail), blank);
  text += why_text(use, detail.tight) + safety_text(answer, use, detail.tight) + set_text(answer, use);
  return text + fmt::format("NEXT   {}\n", answer.next) + files_text(answer, detail.all);
}

}  // namespace

std::string packed_lines(std::string_view label, const std::vector<std::string>& items) {
  std::string text(label);
  size_t width = label.size();
  for (size_t i = 0; i < items.size(); ++i) {
    const bool fits = width + 2 + items[i].size() <= kWidestRow;
    if (i > 0) text += fits ? "; " : fmt::format("\n{:{}}", "", label.size());
    width = items[i].size() + (i > 0 && fits ? width + 2 : label.size());
    text += items[i];
  }
  return text + '\n';
}

std::string text_of(const Answer& answer) {
  if (answer.top > 0) return text_with(answer, {.rows = answer.top});
  // Lists what is left out first where there is much to say.
  constexpr std::array<Detail, 5> kDetails{{{.all = false, .rows = 3},
                                            {.all = false, .rows = 3, .blanks = false},
                                            {.all = false, .rows = 2, .blanks = false},
                                            {.all = false, .rows = 2, .baselines = false, .blanks = false},
                                            {false, 2, false, false, true}}};
  std::string text;
  for (const Detail& detail : kDetails) {
    text = text_with(answer, detail);
    if (std::ranges::count(text, '\n') <= kMostLines) break;
  }
  return text;
}

}  // namespace moe::tuner
