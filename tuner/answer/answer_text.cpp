#include "tuner/answer/answer_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "commands/shared/frameworks.h"
#include "commands/shared/sweep.h"
#include "moe/base/config_files.h"
#include "moe/base/table.h"
#include "moe/base/text.h"
#include "moe/base/units.h"
#include "moe/formats/plan_json.h"
#include "moe/prices/row_finder.h"
#include "moe/search/degrees.h"
#include "tuner/answer/current.h"
#include "tuner/answer/framework_plans.h"
#include "tuner/answer/shape_search.h"

namespace moe::tuner {
namespace {

constexpr size_t kKinds = 4;     // kinds of tasks that are named
constexpr size_t kFewKinds = 2;  // kinds of tasks that are named in a brief answer
constexpr int kMaxLines = 25;    // lines of an answer without --all or --top, and without the user's layout
constexpr std::string_view kPrices = "prices: ";

std::string named(const commands::ChosenModel& chosen) {
  std::string text = describe(chosen.model.shape.layer);
  const ModelShape& model = chosen.model;
  if (model.layers > 1) text = describe_layers(model.layers, model.dense, model.whole, model.shape.layer);
  if (!chosen.name.empty()) text = fmt::format("{}, {}", chosen.name, text);
  return text;
}

std::string fit_line(const FittedProfile& fitted) {
  std::vector<std::string_view> good, weak, unusable;
  for (const FittedRow& row : fitted.rows) (row.good() ? good : !row.unusable ? weak : unusable).push_back(row.what);
  std::string text = fmt::format("fit: {} GOOD", counted(good.size(), "row"));
  if (!weak.empty()) text += fmt::format("; WEAK: {}", some_names(weak));
  if (!unusable.empty()) text += fmt::format("; UNUSABLE: {}", some_names(unusable));
  return text;
}

std::vector<std::string> why_items(const RankedSchedule& row, bool brief) {
  std::vector<std::pair<double, LaneKind>> lanes;
  for (const auto& [kind, seconds] : row.busy_s)
    if (seconds > 0) lanes.emplace_back(seconds, kind);
  std::ranges::sort(lanes, std::greater{});
  std::string working, path;
  for (const auto& [seconds, kind] : lanes)
    working +=
        fmt::format("{}{} works {:.0f} %", working.empty() ? "" : ", ", name_of(kind), 100 * seconds / row.pass_s());
  for (size_t i = 0; i < std::min(brief ? kFewKinds : kKinds, row.critical.size()); ++i) {
    std::string kind = row.critical[i].first;
    std::ranges::replace(kind, '_', ' ');
    path += fmt::format("{}{} {:.0f} %", i == 0 ? "" : ", ", kind, 100 * row.critical[i].second);
  }
  std::vector<std::string> items{fmt::format("{} of the time", working),
                                 fmt::format("computation hides {:.0f} % of communication", 100 * row.hidden),
                                 fmt::format("critical path: {}", path)};
  if (row.expert_sums_s > 0)
    items.push_back(fmt::format("{} sum replicated experts' gradients (not run)", three_digits(row.expert_sums_s)));
  if (row.head_s > 0) items.push_back(fmt::format("{} are the output projection's", three_digits(row.head_s)));
  return items;
}

// Returns the next row with a different time; rows with equal times are other names of the same plan.
const RankedSchedule* runner_up(const Answer& answer, const RankedSchedule& best) {
  for (const RankedSchedule& row : answer.ranking)
    if (row.is_usable() && row.total_s() > best.total_s() && !is_equally_fast(row.total_s(), best.total_s()))
      return &row;
  return nullptr;
}

// Whether the recommendation is safe ("yes", "no", "within the error") and why; without runs there is no verdict.
struct Safety {
  std::string verdict;
  std::vector<std::string> reasons;
};

Safety safety_of(const Answer& answer, const RankedSchedule& use) {
  const RankedSchedule& first = answer.ranking.front();
  const RankedSchedule* second = runner_up(answer, first);
  const double margin = second ? second->total_s() / first.total_s() - 1 : 0;
  const std::string behind =
      second ? fmt::format("{}, next, is predicted {:.1f} % slower", second->schedule->name, 100 * margin)
      : answer.ranking.size() == 1 ? "no other schedule was compared"
                                   : "all other schedules take the same time";
  if (answer.no_trials_reason) return {"", {behind, *answer.no_trials_reason}};
  const bool any_ran = std::ranges::any_of(answer.trials, [](const Trial& t) { return is_sound_run(t.record); });
  if (!any_ran) return {"", {behind, "no run succeeded, so the predictions are unchecked"}};
  const double worst = worst_error(answer);
  const auto verdict = [&](bool safe) { return worst > kLargeError ? "no" : safe ? "yes" : "within the error"; };
  const std::string off = fmt::format("predictions are up to {:.1f} % off", 100 * worst);
  const CaseRecord *lost = trial_of(answer, first.schedule->name), *won = trial_of(answer, use.schedule->name);
  if (lost != nullptr && !is_sound_run(*lost))
    return {"no", {fmt::format("its run was {}", name_of(lost->status)), behind, off}};
  if (&use == &first) return {verdict(second == nullptr || margin > worst), {behind, off}};
  const double slower = expected_s(answer, first, *lost) / expected_s(answer, use, *won) - 1;
  return {verdict(slower > worst),
          {fmt::format("{} was predicted best and ran {:.1f} % slower", first.schedule->name, 100 * slower), off}};
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

// Returns a text that names the schedules whose plans take the same time.
std::string same_text(const Answer& answer, const RankedSchedule& use) {
  std::vector<std::string_view> names;
  for (const RankedSchedule& row : answer.ranking)
    if (&row != &use && row.is_usable() && is_equally_fast(row.total_s(), use.total_s()))
      names.push_back(row.schedule->name);
  return names.empty() ? "" : fmt::format(" (the same: {})", some_names(names));
}

// Returns one item for each kind of note; if `all` and the item would be too long, one item for each note instead.
std::string notes_text(const PriceNotes& notes, bool all) {
  std::map<std::string, std::vector<std::string>> by_label;
  for (const PriceNote& note : notes) {
    if (note.kind == PriceNote::Kind::weak)
      by_label["weak rows"].push_back(note.subject);
    else
      by_label[note.label()].push_back(note.about());
  }
  std::vector<std::string> items;
  for (const auto& [label, whole] : by_label) {
    items.push_back(fmt::format("{}: {}", label, some_names({whole.begin(), whole.end()})));
    if (kPrices.size() + items.back().size() <= kMaxColumns) continue;
    if (!all) {
      items.back() = fmt::format("{}: {}{}", label, whole.front(),
                                 whole.size() > 1 ? fmt::format(" and {} more", whole.size() - 1) : "");
      continue;
    }
    items.pop_back();
    for (const std::string& about : whole) items.push_back(fmt::format("{}: {}", label, about));
  }
  if (items.empty()) return "";
  if (!all) return packed_lines(kPrices, items);
  std::string text;
  for (const std::string& item : items) text += fmt::format("{}{}\n", kPrices, item);
  return text;
}

// Returns "23813 tokens/s/GPU, 214 model TFLOP/s/GPU, MFU 21.6 %".
std::string rates_text(const StepRates& rates, const Profile& profile) {
  const char* rank = profile.memory_bytes ? "GPU" : "rank";
  std::string text = fmt::format("{:.0f} tokens/s/{}, {:.3g} model TFLOP/s/{}", rates.tokens_per_s, rank,
                                 rates.flops_per_s / 1e12, rank);
  if (rates.utilisation) text += fmt::format(", MFU {}", percent(*rates.utilisation));
  return text;
}

std::vector<std::string> use_items(const Answer& answer, const RankedSchedule& use) {
  std::string text = std::string(use.schedule->name);
  if (use.variant != nullptr && use.variant != use.schedule) text += fmt::format(" (= {})", use.variant->name);
  text += same_text(answer, use);
  text += fmt::format(", r_f {}, r_b {}", use.degree_forward,
                      commands::degree_range(use.degrees_backward.first, use.degrees_backward.second));
  if (use.gar_in_moe_bytes > 0)
    text +=
        fmt::format(", {} of gradients inside the MoE part", human_bytes(static_cast<double>(use.gar_in_moe_bytes)));
  text += fmt::format(": {} {}predicted", three_digits(use.total_s()), answer.chosen->stack ? "a step " : "");
  const CaseRecord* trial = trial_of(answer, use.schedule->name);
  const bool whole = ran_all_layers(answer);
  if (trial != nullptr && is_sound_run(*trial) && whole && !ran_partially(use, *trial))
    text += fmt::format(", {} run", three_digits(run_s(*trial)));
  if (trial != nullptr && is_sound_run(*trial) && !whole)
    text += fmt::format(" ({} of its layers ran {:+.1f} % off)", answer.trial_layers, 100 * error_of(*trial));
  const std::optional<StepRates> rates = rates_of(*answer.chosen, *answer.profile, use.total_s());
  return rates ? std::vector{text, rates_text(*rates, *answer.profile)} : std::vector{text};
}

// Returns items on a schedule faster than the preferred one, unless a run or the shape search decided, and on schedules
// that were not planned because the time ended.
std::vector<std::string> preferred_items(const Answer& answer, const RankedSchedule& use) {
  if (answer.shapes != nullptr) return {};
  std::vector<std::string_view> late;
  for (const RankedSchedule& row : answer.ranking)
    if (row.refusal && row.refusal->kind == Refusal::Kind::not_in_time) late.push_back(row.schedule->name);
  std::vector<std::string> items;
  if (!late.empty()) items.push_back(fmt::format("not planned within the time limit: {} (--all)", some_names(late)));
  if (&use != &answer.ranking.front()) return items;
  const RankedSchedule* fastest = &use;
  for (const RankedSchedule& row : answer.ranking)
    if (row.is_usable() && row.total_s() < fastest->total_s()) fastest = &row;
  if (is_equally_fast(fastest->total_s(), use.total_s())) return items;
  const std::string name =
      fmt::format("{} r_f {} r_b {}", fastest->schedule->name, fastest->degree_forward,
                  commands::degree_range(fastest->degrees_backward.first, fastest->degrees_backward.second));
  std::ranges::copy(preference_items(use, *fastest, name, use.total_s() / fastest->total_s() - 1),
                    std::back_inserter(items));
  return items;
}

// Returns the layers or the model, their groups if `shaped`, and the cluster.
std::vector<std::string> question_lines(const Answer& answer, const RankedSchedule& use, bool shaped) {
  const std::optional<double>& has = answer.profile->memory_bytes;
  const std::string& here = answer.chosen->model_on_cluster;
  std::vector<std::string> lines{named(*answer.chosen)};
  if (!here.empty()) lines.push_back(fmt::format("on {}: {}", answer.cluster, here));
  if (const auto& replaced = answer.chosen->replaced_mixers; !replaced.empty())
    lines.push_back(fmt::format("planned as attention over all tokens: {}", fmt::join(replaced, ", ")));
  for (const PriceNote& note : use.notes)
    if (note.subject == kFp8Experts) lines.push_back(note.text());
  if (shaped) lines.push_back(describe_shape(answer.chosen->model));
  if (!answer.defaults.empty())
    lines.push_back(fmt::format("defaults: {}; papers use --zero 0 --recompute none", fmt::join(answer.defaults, " ")));
  lines.push_back(fmt::format("{}; a rank needs {}{}{}{}", answer.place, human_bytes(use.memory_bytes),
                              has ? fmt::format(" of {}", human_bytes(*has)) : "",
                              memory_rules_text(answer.chosen->model.shape.parallel.trainer),
                              answer.emulated ? "; every run below is emulated" : ""));
  return lines;
}

// Returns the question and the source of its prices.
std::string question_text(const Answer& answer, const RankedSchedule& use, const AnswerDetail& detail) {
  const std::vector<std::string> lines = question_lines(answer, use, detail.all || answer.shapes == nullptr);
  const std::string text = fmt::format("{}{}\n", detail.all ? "\n" : "", fmt::join(lines, "\n"));
  std::string fit = answer.fitted == nullptr ? "" : fit_line(*answer.fitted);
  if (!fit.empty()) fit += detail.tight ? ';' : '\n';
  if (!detail.tight) return text + fit + notes_text(use.notes, detail.all);
  // A short answer has one line for the fit, the origins of the prices, and the number of notes and schedules hidden.
  std::string origins = text_of_origins(*answer.profile);
  if (!origins.empty()) origins += "; ";
  return text + fmt::format("{}{}prices: {}{} notes on them; {} in all (--all)\n", fit, fit.empty() ? "" : " ", origins,
                            use.notes.size(), counted(answer.ranking.size(), "schedule"));
}

std::vector<std::string> safety_lines(const Answer& answer, const RankedSchedule& use, bool tight) {
  const Safety safety = safety_of(answer, use);
  std::vector<std::string> lines{
      fmt::format("{}{}{}", safety.verdict, safety.verdict.empty() ? "" : ": ", fmt::join(safety.reasons, "; "))};
  if (const std::string far = large_error_text(answer); !far.empty() && !tight) lines.push_back(far);
  if (answer.published) lines.push_back(commands::text_of(*answer.published));
  if (!answer.neighbours.empty() && !(answer.published && tight))
    lines.push_back("degrees one step off: " + neighbours_text(answer));
  return lines;
}

// Returns the names of the files. Only `all` includes the records, because a short answer names them in the line on
// all settings.
std::string files_text(const Answer& answer, bool all) {
  std::vector<std::string> files;
  const bool others = !answer.profile_path.empty() || !answer.trace_path.empty();
  if (!answer.records_path.empty() && (all || others)) files.push_back("records " + answer.records_path);
  if (!answer.profile_path.empty()) files.push_back("profile " + answer.profile_path);
  if (!answer.trace_path.empty()) files.push_back(fmt::format("timeline {} (ui.perfetto.dev)", answer.trace_path));
  return files.empty() ? "" : packed_lines("FILES  ", files);
}

// Returns the user's layout and the steps from it, if it is known.
std::string included_text_path(const Answer& answer) {
  return answer.walk ? fmt::format("YOURS  {}\n", fmt::join(walk_lines(answer), "\n       ")) : "";
}

std::string text_with(const Answer& answer, const AnswerDetail& detail) {
  const RankedSchedule& use = recommended(answer);
  const std::string blank = detail.blanks ? "\n" : "";
  std::string text = question_text(answer, use, detail) + blank;
  if (answer.shapes != nullptr)
    text += detail.all ? text_of(*answer.shapes, detail.rows) + '\n' : brief_text_of(*answer.shapes, detail.tight);
  text += packed_lines("USE    ", use_items(answer, use));
  if (const auto preferred = preferred_items(answer, use); !preferred.empty()) text += packed_lines(kIndent, preferred);
  text += ranking_text(answer, detail) + blank + included_text_path(answer);
  text += packed_lines("WHY    ", why_items(use, detail.brief));
  text += fmt::format("SAFE?  {}\n{}", fmt::join(safety_lines(answer, use, detail.tight), "\n       "),
                      frameworks_text(answer, use, detail.tight ? detail.plans : 0));
  return text + fmt::format("NEXT   {}\n", answer.next) + files_text(answer, detail.all);
}

}  // namespace

std::string memory_rules_text(Trainer trainer) {
  const auto framework =
      std::ranges::find(commands::frameworks(), std::optional(trainer), &commands::Framework::trainer);
  return framework->runs_all_schedules() ? "" : fmt::format(", kept as {} does", framework->name);
}

std::string three_digits(double seconds) {
  const auto [scale, unit] = seconds >= 1      ? std::pair(1.0, "s")
                             : seconds >= 1e-3 ? std::pair(1e3, "ms")
                                               : std::pair(1e6, "us");
  const double value = scale * seconds;
  return fmt::format("{:.{}f} {}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2, unit);
}

std::string packed_lines(std::string_view label, const std::vector<std::string>& items) {
  std::string text(label);
  size_t width = label.size();
  const auto widest = static_cast<size_t>(limited_output_columns(kMaxColumns));
  for (size_t i = 0; i < items.size(); ++i) {
    const bool fits = width + 2 + items[i].size() <= widest;
    if (i > 0) text += fits ? "; " : fmt::format("\n{:{}}", "", label.size());
    width = items[i].size() + (i > 0 && fits ? width + 2 : label.size());
    text += items[i];
  }
  return text + '\n';
}

std::string text_of(const Answer& answer) {
  if (answer.top > 0) return text_within_columns(text_with(answer, {.rows = answer.top}), kIndent.size());
  // Levels of detail, from the longest answer to the shortest; the first one that fits is used.
  constexpr std::array<AnswerDetail, 11> kDetails{{{.all = false, .rows = 3},
                                                   {.all = false, .rows = 3, .blanks = false},
                                                   {.all = false, .rows = 3, .baselines = false, .blanks = false},
                                                   {.all = false, .rows = 2, .baselines = false, .blanks = false},
                                                   {false, 2, false, false, true},
                                                   {false, 2, false, false, true, true},
                                                   {false, 1, false, false, true, true},
                                                   {false, 1, false, false, true, true, 4},
                                                   {false, 1, false, false, true, true, 3},
                                                   {false, 1, false, false, true, true, 2},
                                                   {false, 1, false, false, true, true, 1}}};
  const auto most = kMaxLines + std::ranges::count(included_text_path(answer), '\n');
  std::string text;
  for (const AnswerDetail& detail : kDetails) {
    text = text_with(answer, detail);
    if (std::ranges::count(text, '\n') <= most) break;
  }
  return text_within_columns(text, kIndent.size());
}

namespace {

struct ShownRow {
  const RankedSchedule* row;
  bool current;
};

// Returns whether the row is the user's present schedule with its degrees and memory, and no trial ran.
bool is_current(const Answer& answer, const RankedSchedule& row) {
  return answer.current && answer.trials.empty() && answer.current->schedule == row.schedule &&
         answer.current->degree_forward == row.degree_forward &&
         answer.current->degrees_backward == row.degrees_backward && answer.current->memory_bytes == row.memory_bytes;
}

// Returns the rows to show, the fastest first.
std::vector<ShownRow> rows_to_show(const Answer& answer, const AnswerDetail& detail) {
  std::vector<ShownRow> rows;
  int left = detail.rows;
  double last_s = 0;
  bool current = false;
  for (const RankedSchedule& row : answer.ranking) {
    if (row.refusal) continue;
    const bool kept = (detail.baselines && commands::is_baseline(row.schedule->name)) ||
                      (!detail.tight && trial_of(answer, row.schedule->name) != nullptr);
    const bool counts = detail.all || !is_equally_fast(row.total_s(), last_s);
    if (counts) last_s = row.total_s();
    const bool shown = (counts && left-- > 0) || kept;
    if (!shown) continue;
    rows.push_back({&row, !detail.all && is_current(answer, row)});
    current |= rows.back().current;
  }
  if (answer.current && !current) rows.push_back({&*answer.current, true});
  std::ranges::stable_sort(rows, {}, [](const ShownRow& shown) { return shown.row->total_s(); });
  return rows;
}

// Returns a lower bound on the seconds of all usable schedules.
double min_bound_s(const Answer& answer) {
  double min_s = std::numeric_limits<double>::infinity();
  for (const RankedSchedule& row : answer.ranking)
    if (row.is_usable()) min_s = std::min(min_s, row.bound_s);
  return min_s;
}

// Returns the notes below the ranking.
std::vector<std::string> ranking_notes(const Answer& answer) {
  std::vector<std::string> notes;
  const RankedSchedule& use = recommended(answer);
  const CaseRecord* ran = trial_of(answer, use.schedule->name);
  if (ran_all_layers(answer) && ran != nullptr && is_sound_run(*ran) && ran_partially(use, *ran))
    notes.push_back(fmt::format("runs cover {} of {}'s {}; the rest is only priced", three_digits(predicted_s(*ran)),
                                use.schedule->name, three_digits(use.total_s())));
  if (!answer.current) return notes;
  const auto add = [&](const std::string& note) {
    notes.push_back(fmt::format("{} (yours): {}", answer.current->schedule->name, note));
  };
  if (answer.current->refusal) add(answer.current->refusal->text());
  for (const PriceNote& note : answer.current->notes)
    if (note.kind == PriceNote::Kind::degree_above) add(note.text());
  return notes;
}

// Returns the number of hidden rows, and the reasons why some schedules are unusable.
std::string left_out_text(const Answer& answer, const AnswerDetail& detail, size_t shown) {
  const auto refused = static_cast<size_t>(
      std::ranges::count_if(answer.ranking, [](const RankedSchedule& row) { return !row.is_usable(); }));
  const size_t hidden = answer.ranking.size() - shown - refused;
  std::string text =
      hidden > 0 && !detail.brief ? fmt::format("  and {} {} (--top N)", hidden, detail.all ? "slower" : "more") : "";
  if (detail.all) {
    if (!text.empty()) text += '\n';
    if (refused > 0)
      text += fmt::format("  and {} that cannot be used here:\n    {}\n", refused,
                          fmt::join(refusals_of(answer.ranking), "\n    "));
  } else {
    if (refused > 0 && !detail.brief)
      text += fmt::format("{} {} that cannot be used here (reasons: --all)", text.empty() ? "  and" : ",", refused);
    if (!text.empty()) text += '\n';
  }
  for (const std::string& note : ranking_notes(answer)) text += fmt::format("  {}\n", note);
  return text;
}

}  // namespace

std::vector<std::string> preference_items(const RankedSchedule& use, const RankedSchedule& faster,
                                          const std::string& words, double share) {
  const bool smaller = use.memory_bytes < faster.memory_bytes;
  const std::string rule = fmt::format("of plans within {:.0f} % this one {}", 100 * kEquallyFast,
                                       smaller ? "needs the least memory" : "has the fewest chunks");
  return {rule, fmt::format("{} is {:.2f} % faster{}", words, 100 * share,
                            smaller ? " and needs " + human_bytes(faster.memory_bytes) : "")};
}

std::pair<std::string, std::string> short_shape(const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  std::string text;
  for (const auto& [name, size] : {std::pair{"DP", p.dp},
                                   {"CP", p.cp},
                                   {"MP", p.mp},
                                   {"EP", p.ep},
                                   {"ESP", p.esp},
                                   {"PP", p.pp},
                                   {"VP", model.split().virtual_stages}})
    if (size > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, size);
  if (const std::string ends = describe_ends(model.split()); !ends.empty()) text += " " + ends;
  if (p.ring_blocks() > 0) text += " ring";
  if (p.ep > 1 && p.esp > 1) text += fmt::format(" {}", placement_name(p));
  std::string cut = fmt::format("{} of {}", model.whole_micro_batches(), model.shape.layer.batch);
  if (model.micro_batches > 1) cut += fmt::format(" {}", name_of(model.order));
  if (p.zero > 0) cut += fmt::format(", ZeRO {}", p.zero);
  if (p.recompute != Recompute::none) cut += p.recompute == Recompute::full ? ", recompute full" : ", recompute";
  if (p.offload != Offload::none) cut += ", offload";
  return {text, cut};
}

namespace {

// Returns the cells of a row's run: its time and the prediction's error.
std::vector<std::string> run_cells(const CaseRecord* trial) {
  if (trial == nullptr) return {"-", "-"};
  if (!is_sound_run(*trial)) return {"-", std::string(name_of(trial->status))};
  return {three_digits(run_s(*trial)), fmt::format("{:+.2f} %", 100 * error_of(*trial))};
}

// Returns the table of the ranking and the number of rows shown.
std::pair<Table, size_t> ranking_table(const Answer& answer, const AnswerDetail& detail) {
  const RankedSchedule* tutel = row_of(answer, commands::kBaselines.front());
  const bool whole = ran_all_layers(answer);
  std::vector<std::string> header{"schedule", "r_f", "r_b", "predicted"};
  if (!answer.trials.empty()) {
    header.push_back(whole ? "run" : fmt::format("run, {} layers", answer.trial_layers));
    header.emplace_back("error");
  }
  if (tutel != nullptr) header.emplace_back("over tutel");
  header.insert(header.end(), {"of bound", "of own bound", "a rank needs"});
  Table table(header);
  table.hide_first({"of own bound", "of bound"}, "--wide");
  const RankedSchedule& use = recommended(answer);
  const std::vector<ShownRow> rows = rows_to_show(answer, detail);
  size_t shown = 0;
  for (const auto& [row, current] : rows) {
    shown += answer.current && row == &*answer.current ? 0 : 1;
    const std::string name =
        fmt::format("{}{}{}", row->schedule->name, row == &use ? kUseMark : "", current ? " (yours)" : "");
    if (row->refusal) continue;
    std::vector<std::string> cells{name, fmt::format("{}", row->degree_forward),
                                   commands::degree_range(row->degrees_backward.first, row->degrees_backward.second),
                                   three_digits(row->total_s())};
    if (!answer.trials.empty()) {
      const std::vector<std::string> run = run_cells(trial_of(answer, row->schedule->name, current));
      cells.insert(cells.end(), run.begin(), run.end());
    }
    if (tutel != nullptr) cells.push_back(fmt::format("{:.3f}x", tutel->total_s() / row->total_s()));
    for (const double bound_s : {min_bound_s(answer), row->bound_s}) cells.push_back(percent(bound_s / row->total_s()));
    cells.push_back(human_bytes(row->memory_bytes));
    table.add(cells);
  }
  return {table, shown};
}

}  // namespace

std::string ranking_text(const Answer& answer, const AnswerDetail& detail) {
  const auto [table, shown] = ranking_table(answer, detail);
  return table.text() + left_out_text(answer, detail, shown);
}

namespace {

constexpr size_t kFastest = 2;          // fastest shapes that are always shown
constexpr double kUnpricedShare = 0.1;  // if more shapes lack a price, the text begins with them
constexpr size_t kReasons = 3;          // reasons that are shown for refused shapes
constexpr size_t kSmaller = 3;          // shapes with less memory that are shown in the short answer

constexpr size_t kMaxShapes = 39;  // largest number of shapes for which lines have at most 120 columns

// Returns the counts of shapes; if many lack a price, the rows that the profile lacks come first.
std::string counts_of(const FoundShapes& found) {
  std::string text =
      found.unpriced > kUnpricedShare * found.shapes
          ? fmt::format("{} of {} shapes have no price on this profile\n       ", found.unpriced, found.shapes)
          : "";
  text += fmt::format(
      "{} shapes of a global batch of {}; none that fits and has a price is {}faster\n"
      "       left out: {} too large, {} slower by their bound",
      found.shapes, found.global_batch, found.gap() <= 0 ? "" : fmt::format("more than {:.1f} % ", 100 * found.gap()),
      found.too_large, found.ruled_out);
  if (found.not_reached > 0)
    text += fmt::format(", {} not reached in time{}", found.not_reached,
                        found.gap() <= 0 ? ": slower, some with less memory" : "");
  if (found.refused > 0) text += fmt::format(", {} refused:", found.refused);
  for (size_t i = 0; i < std::min(kReasons, found.refusals.size()); ++i)
    text += fmt::format("\n       {:6}  {}", found.refusals[i].second, found.refusals[i].first.brief());
  if (found.refusals.size() > kReasons)
    text += fmt::format("\n       and {} further reasons (--json lists them)", found.refusals.size() - kReasons);
  return text;
}

// Returns the number of shapes without a plan, and the most frequent reason.
std::string most_frequent_refusal(const FoundShapes& found, bool why) {
  const std::string priceless = found.unpriced == found.refused ? " without a price"
                                : found.unpriced > 0 ? fmt::format(" refused ({} without a price)", found.unpriced)
                                                     : " refused";
  const std::string reason = found.refusals.empty() ? "" : found.refusals.front().first.brief();
  return fmt::format("{}{}{}", found.refused, priceless, reason.empty() || !why ? "" : ", most often: " + reason);
}

// Returns how a shape compares with the preferred one: "+7.0 %, 71.31 GiB".
std::string comparison_text(const FoundShapes& found, const RankedShape& shape) {
  return fmt::format("{:+.1f} %, {}", 100 * (shape.total_s() / found.ranked.front().total_s() - 1),
                     human_bytes(shape.best.memory_bytes));
}

std::string shape_text(const RankedShape& shape) {
  const auto [groups, cut] = short_shape(shape.model);
  const RankedSchedule& best = shape.best;
  return fmt::format("{}{}{}, {} r_f {} r_b {}", groups, groups.empty() ? "" : ", ", cut, best.schedule->name,
                     best.degree_forward,
                     commands::degree_range(best.degrees_backward.first, best.degrees_backward.second));
}

// Returns items on a plan faster than the preferred one; empty if none is faster.
std::vector<std::string> preference_of(const FoundShapes& found) {
  if (!found.fastest) return {};
  const RankedShape& use = found.ranked.front();
  return preference_items(use.best, found.fastest->best, shape_text(*found.fastest),
                          use.total_s() / found.fastest->total_s() - 1);
}

std::string preference_text(const FoundShapes& found) {
  const std::vector<std::string> items = preference_of(found);
  return items.empty() ? "" : packed_lines(kIndent, items);
}

// Returns what was searched and what was left out.
std::vector<std::string> search_items(const FoundShapes& found, bool tight) {
  std::vector<std::string> items{
      fmt::format("of {} shapes of a global batch of {} none that fits and has a price is {}faster", found.shapes,
                  found.global_batch, found.gap() <= 0 ? "" : fmt::format("more than {:.1f} % ", 100 * found.gap()))};
  if (found.staged_iterations)
    items.push_back(fmt::format("wave on several stages: only planned for {} shapes", *found.staged_iterations));
  items.push_back(fmt::format("left out: {} too large, {} slower by their bound", found.too_large, found.ruled_out));
  if (found.not_reached > 0)
    items.back() += fmt::format(", {} not reached in time{}", found.not_reached,
                                found.gap() <= 0 ? " (slower, some with less memory)" : "");
  if (found.refused > 0) items.push_back(most_frequent_refusal(found, !tight));
  if (!found.pinned.empty()) items.push_back(fmt::format("not searched: {}", fmt::join(found.pinned, ", ")));
  return items;
}

}  // namespace

std::string brief_text_of(const FoundShapes& found, bool tight) {
  const RankedShape& first = found.ranked.front();
  std::vector<std::string> items = search_items(found, tight);
  std::string text = fmt::format("SHAPE  {}\n{}", describe_shape(first.model), packed_lines(kIndent, items));
  if (!tight) text += preference_text(found);
  if (found.ranked.size() > 1 && !found.fastest && !tight)
    text +=
        fmt::format("{}next: {}: {}\n", kIndent, comparison_text(found, found.ranked[1]), shape_text(found.ranked[1]));
  std::vector<const RankedShape*> smaller, larger;  // on the Pareto front, with less and with more memory
  for (const RankedShape& shape : found.ranked)
    if (shape.pareto && &shape != &first)
      (shape.best.memory_bytes < first.best.memory_bytes ? smaller : larger).push_back(&shape);
  items.clear();
  if (!larger.empty()) items.push_back("Pareto front: " + comparison_text(found, *larger.front()));
  const size_t begin = items.size(), shown = std::min(kSmaller - begin, smaller.size());
  for (size_t i = 0; i < shown; ++i) items.push_back(comparison_text(found, *smaller[i]));
  if (smaller.empty())
    items.emplace_back("no other needs less memory");
  else
    items[begin] = (larger.empty() ? "Pareto front, with less memory: " : "less memory: ") + items[begin];
  if (smaller.size() > shown) items.push_back(fmt::format("and {} more", smaller.size() - shown));
  if (!smaller.empty()) items.back() += " (--top N)";
  return text + packed_lines(kIndent, items);
}

std::string describe_shape(const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  std::string text = describe_groups(p);
  if (const std::string ends = describe_ends(model.split()); !ends.empty()) text += " " + ends;
  if (p.ep > 1 && p.esp > 1) text += fmt::format(" {}", placement_name(p));
  text += fmt::format(", {} of {}", counted(model.whole_micro_batches(), "micro-batch"), model.shape.layer.batch);
  if (const std::string states = describe_states(p); !states.empty()) text += ", " + states;
  return model.micro_batches > 1 ? fmt::format("{} ({})", text, describe_order(model)) : text;
}

namespace {

// Returns the first `top` shapes: the fastest, and the Pareto front. If `two_lines`, each has two lines, with the
// groups above the rest.
Table shapes_table(const FoundShapes& found, int top, bool two_lines) {
  std::vector<std::string> columns{"groups, micro-batches", "schedule", "r_f", "r_b", "predicted",
                                   "a rank needs",          "Pareto"};
  Table table(columns);
  table.hide_first({"Pareto"}, "--wide");
  int left = top;
  std::vector<const RankedShape*> shown;
  for (size_t i = 0; i < found.ranked.size(); ++i) {
    if ((i < kFastest || found.ranked[i].pareto) && left-- > 0) shown.push_back(&found.ranked[i]);
  }
  std::ranges::stable_sort(shown, {}, &RankedShape::total_s);
  for (const RankedShape* row : shown) {
    const RankedShape& shape = *row;
    const RankedSchedule& best = shape.best;
    const auto [groups, cut] = short_shape(shape.model);
    const bool below = two_lines && !groups.empty();
    std::vector<std::string> cells{
        below            ? groups
        : groups.empty() ? cut
                         : fmt::format("{}, {}", groups, cut),
        fmt::format("{}{}", best.schedule->name, row == &found.ranked.front() ? kUseMark : ""),
        fmt::format("{}", best.degree_forward),
        commands::degree_range(best.degrees_backward.first, best.degrees_backward.second),
        three_digits(best.total_s()),
        human_bytes(best.memory_bytes),
        shape.pareto ? "yes" : "no"};
    table.add(cells);
    if (!below) continue;
    cells.assign(cells.size(), "");
    cells.front() = "  " + cut;
    table.add(cells);
  }
  return table;
}

}  // namespace

std::string text_of(const FoundShapes& found, int top) {
  const bool two_lines = std::ranges::any_of(found.ranked, [](const RankedShape& shape) {
    const auto [groups, cut] = short_shape(shape.model);
    return groups.size() + cut.size() > kMaxShapes;
  });
  const std::string pinned =
      found.pinned.empty() ? ""
                           : packed_lines(kIndent, {fmt::format("not searched: {}", fmt::join(found.pinned, ", "))});
  std::string text = fmt::format("SHAPE  {}\n{}{}\n{}", counts_of(found), pinned, preference_text(found),
                                 shapes_table(found, top, two_lines).text());
  const auto front = static_cast<int>(std::ranges::count_if(found.ranked, &RankedShape::pareto));
  const int hidden = std::max(0, front - top);
  return hidden > 0 ? fmt::format("{}  and {} more that take less memory (--top N)\n", text, hidden) : text;
}

namespace {

// Returns the predicted and the measured gain of a row over tutel: "predicted 1.020x over tutel, not run".
std::string gain_text(const Answer& answer, const RankedSchedule& row, const RankedSchedule& tutel) {
  const CaseRecord *own = trial_of(answer, row.schedule->name), *other = trial_of(answer, tutel.schedule->name);
  const std::string predicted = is_equally_fast(row.total_s(), tutel.total_s())
                                    ? "predicted as fast as tutel"
                                    : fmt::format("predicted {:.3f}x over tutel", tutel.total_s() / row.total_s());
  if (own == nullptr || !is_sound_run(*own)) return predicted + ", not run";
  if (other == nullptr || !is_sound_run(*other)) return predicted;
  const double ran = expected_s(answer, tutel, *other) / expected_s(answer, row, *own);
  return fmt::format("{}, ran {}", predicted,
                     ran < 1 ? fmt::format("slower ({:.3f}x)", ran) : fmt::format("{:.3f}x", ran));
}

}  // namespace

std::string verdict_of(const Answer& answer) {
  const RankedSchedule& use = recommended(answer);
  const RankedSchedule* tutel = row_of(answer, commands::kBaselines.front());
  const std::string safe = safety_of(answer, use).verdict;
  std::vector<std::string> parts;
  if (!safe.empty()) parts.push_back(safe == "yes" ? "safe" : safe == "no" ? "not safe" : safe);
  const RankedSchedule& first = answer.ranking.front();
  if (tutel != nullptr && &use != tutel)
    parts.push_back(gain_text(answer, use, *tutel));
  else if (tutel != nullptr && &first != tutel)
    parts.push_back(fmt::format("{} was {}", first.schedule->name, gain_text(answer, first, *tutel)));
  else
    parts.emplace_back(tutel != nullptr ? "none is predicted faster than tutel" : "predicted fastest");
  return fmt::format("{}", fmt::join(parts, ": "));
}

std::vector<AnswerPart> parts_of(const Answer& answer) {
  const RankedSchedule& use = recommended(answer);
  constexpr int kAll = std::numeric_limits<int>::max();
  std::vector<AnswerPart> parts{{"VERDICT", {verdict_of(answer)}, {}},
                                {"QUESTION", question_lines(answer, use, true), {}}};
  const auto append = [](std::vector<std::string>& items, const std::vector<std::string>& more) {
    items.insert(items.end(), more.begin(), more.end());
  };
  if (answer.shapes != nullptr) {
    AnswerPart& shape = parts.emplace_back(AnswerPart{"SHAPE", search_items(*answer.shapes, false), {}});
    append(shape.items, preference_of(*answer.shapes));
    shape.table = shapes_table(*answer.shapes, kAll, false).rows();
  }
  AnswerPart part{"USE", use_items(answer, use), ranking_table(answer, {.rows = kAll}).first.rows()};
  append(part.items, preferred_items(answer, use));
  append(part.items, ranking_notes(answer));
  parts.push_back(std::move(part));
  if (answer.walk) parts.push_back({"YOURS", walk_lines(answer), {}});
  parts.push_back({"WHY", why_items(use, false), {}});
  parts.push_back({"SAFE?", safety_lines(answer, use, false), {}});
  parts.push_back(frameworks_part(answer, use));
  parts.push_back({"NEXT", {answer.next}, {}});
  const std::set<std::string> texts = texts_of(use.notes);
  std::vector<std::string> notes(texts.begin(), texts.end());
  if (answer.fitted != nullptr) notes.insert(notes.begin(), fit_line(*answer.fitted));
  if (!notes.empty()) parts.push_back({"PRICES", std::move(notes), {}});
  if (std::vector<std::string> refusals = refusals_of(answer.ranking); !refusals.empty())
    parts.push_back({"NOT HERE", std::move(refusals), {}});
  return parts;
}

Json shape_json(const ModelShape& model) {
  Json json = group_sizes(model.shape.parallel);
  json["placement"] = placement_name(model.shape.parallel);
  json["batch"] = model.shape.layer.batch;
  json["micro_batches"] = model.whole_micro_batches();
  json["pipeline"] = name_of(model.order);
  json["virtual_stages"] = model.split().virtual_stages;
  const StageSplit split = model.split();
  if (split.first_layers > 0) json["first_stage_layers"] = split.first_layers;
  if (split.last_layers > 0) json["last_stage_layers"] = split.last_layers;
  return json;
}

Json json_of(const FoundShapes& found) {
  Json shapes = Json::array();
  for (const RankedShape& shape : found.ranked) {
    Json json = shape_json(shape.model);
    json["schedule"] = shape.best.schedule->name;
    json["degree_forward"] = shape.best.degree_forward;
    json["degree_backward_least"] = shape.best.degrees_backward.first;
    json["degree_backward_most"] = shape.best.degrees_backward.second;
    json["total_s"] = shape.best.total_s();
    json["head_s"] = shape.best.head_s;
    json["expert_sums_s"] = shape.best.expert_sums_s;
    json["memory_bytes"] = shape.best.memory_bytes;
    json["pareto"] = shape.pareto;
    shapes.push_back(std::move(json));
  }
  Json refusals = Json::array();
  for (const auto& [refusal, count] : found.refusals)
    refusals.push_back({{"reason", refusal.text()}, {"shapes", count}});
  return {{"global_batch", found.global_batch},
          {"pinned", found.pinned},
          {"shapes", found.shapes},
          {"too_large", found.too_large},
          {"refused", found.refused},
          {"refusal", found.refusals.empty() ? "" : found.refusals.front().first.text()},
          {"unpriced", found.unpriced},
          {"refusals", refusals},
          {"ruled_out", found.ruled_out},
          {"not_reached", found.not_reached},
          {"staged_iterations", found.staged_iterations ? Json(*found.staged_iterations) : Json()},
          {"at_least_s", found.at_least_s},
          {"gap", found.gap()},
          {"ranked", shapes}};
}

}  // namespace moe::tuner
