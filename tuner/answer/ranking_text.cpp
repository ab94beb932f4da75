#include <algorithm>
#include <fmt/ranges.h>
#include <limits>

#include "moe/base/table.h"
#include "moe/base/units.h"
#include "moe/search/degrees.h"
#include "tuner/answer/text_parts.h"
#include "verbs/frameworks.h"
#include "verbs/sweep.h"

namespace moe::tuner {
namespace {

struct Shown {
  const RankedSchedule* row;
  bool current;
};

// Returns whether the user's schedule, as it is now, is that row: nothing of its own was run.
bool is_current(const Answer& answer, const RankedSchedule& row) {
  return answer.current && answer.trials.empty() && answer.current->schedule == row.schedule &&
         answer.current->degree_forward == row.degree_forward &&
         answer.current->degrees_backward == row.degrees_backward;
}

std::vector<Shown> shown_rows(const Answer& answer, const Detail& detail) {
  std::vector<Shown> rows;
  int left = detail.rows;
  double last_s = 0;
  bool current = false;
  for (const RankedSchedule& row : answer.ranking) {
    if (!row.refused.empty()) continue;
    const bool baseline =
        detail.baselines ? verbs::is_baseline(row.schedule->name) : row.schedule->name == verbs::kBaselines.front();
    const bool kept = baseline || (!detail.tight && trial_of(answer, row.schedule->name) != nullptr);
    const bool counts = detail.all || !same_time(row.total_s(), last_s);
    if (counts) last_s = row.total_s();
    const bool shown = (counts && left-- > 0) || kept;
    if (!shown) continue;
    rows.push_back({&row, !detail.all && is_current(answer, row)});
    current |= rows.back().current;
  }
  if (answer.current && !current) rows.push_back({&*answer.current, true});
  return rows;
}

// Returns what no schedule that can be used can beat.
double least_bound_s(const Answer& answer) {
  double least_s = std::numeric_limits<double>::infinity();
  for (const RankedSchedule& row : answer.ranking)
    if (row.refused.empty()) least_s = std::min(least_s, row.bound_s);
  return least_s;
}

// Says how many rows are left out, and why some can't be used.
std::string left_out_text(const Answer& answer, const Detail& detail, size_t shown) {
  const auto refused = static_cast<size_t>(
      std::ranges::count_if(answer.ranking, [](const RankedSchedule& row) { return !row.refused.empty(); }));
  const size_t hidden = answer.ranking.size() - shown - refused;
  std::string text =
      hidden > 0 && !detail.tight ? fmt::format("  and {} {} (--top N)", hidden, detail.all ? "slower" : "more") : "";
  if (detail.all) {
    if (!text.empty()) text += '\n';
    if (refused > 0)
      text += fmt::format("  and {} that can't be used here:\n    {}\n", refused,
                          fmt::join(refusals_of(answer.ranking), "\n    "));
  } else {
    if (refused > 0 && !detail.tight)
      text += fmt::format("{} {} that can't be used here (--all says why)", text.empty() ? "  and" : ",", refused);
    if (!text.empty()) text += '\n';
  }
  const RankedSchedule& use = recommended(answer);
  const CaseRecord* ran = trial_of(answer, use.schedule->name);
  if (ran_whole(answer) && ran != nullptr && ran_well(*ran) && ran_in_part(use, *ran))
    text += fmt::format("  runs are of {:.3f} ms of {}'s {:.3f}: the rest is priced\n", 1e3 * predicted_s(*ran),
                        use.schedule->name, 1e3 * use.total_s());
  if (answer.current && !answer.current->refused.empty())
    text += fmt::format("  {} (yours): {}\n", answer.current->schedule->name, answer.current->refused);
  if (answer.current)
    for (const std::string& note : answer.current->notes)
      if (note.starts_with(kDegreeAbove))
        text += fmt::format("  {} (yours): {}\n", answer.current->schedule->name, note);
  return text;
}

}  // namespace

std::string preference_text(const RankedSchedule& use, const RankedSchedule& faster, const std::string& words,
                            double share) {
  const bool smaller = use.memory_bytes < faster.memory_bytes;
  const std::string rule = fmt::format("of plans within {:.0f} % this one {}", 100 * kEquallyFast,
                                       smaller ? "needs the least memory" : "has the fewest chunks");
  return packed_lines(kIndent, {rule, fmt::format("{} is {:.2f} % faster{}", words, 100 * share,
                                                  smaller ? " and needs " + human_bytes(faster.memory_bytes) : "")});
}

std::string ranking_text(const Answer& answer, const Detail& detail) {
  const RankedSchedule* tutel = row_of(answer, verbs::kBaselines.front());
  const bool whole = ran_whole(answer);
  std::vector<std::string> header{"schedule", "r_f", "r_b", "predicted ms"};
  if (!answer.trials.empty()) {
    header.push_back(whole ? "run ms" : fmt::format("run ms, {} layers", answer.trial_layers));
    header.emplace_back("error");
  }
  header.insert(header.end(), {"over tutel", "of the bound", "of its own", "a rank needs"});
  Table table(header);
  const std::vector<Shown> rows = shown_rows(answer, detail);
  size_t shown = 0;
  for (const auto& [row, current] : rows) {
    shown += answer.current && row == &*answer.current ? 0 : 1;
    std::string name = std::string(row->schedule->name) + (current ? " (yours)" : "");
    if (!row->refused.empty()) continue;
    std::vector<std::string> cells{name, fmt::format("{}", row->degree_forward),
                                   verbs::degree_range(row->degrees_backward.first, row->degrees_backward.second),
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
      cells.push_back(percent(bound_s / row->total_s()));
    cells.push_back(human_bytes(row->memory_bytes));
    table.add(cells);
  }
  return table.text() + left_out_text(answer, detail, shown);
}

}  // namespace moe::tuner
