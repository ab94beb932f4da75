#include "tuner/answer/answer.h"

#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>
#include <span>

#include "moe/base/check.h"
#include "moe/base/registry.h"

namespace moe::tuner {
namespace {

constexpr size_t kNamesShown = 3;        // of schedules that are refused alike
constexpr double kClearlyFaster = 0.01;  // less is noise between two runs

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

bool ran_well(const CaseRecord& record) { return record.status == CaseStatus::ok && record.summary.has("total_s"); }
double run_s(const CaseRecord& record) { return record.summary.number("total_s", record.key); }
double predicted_s(const CaseRecord& record) { return record.prediction.number("total_s", record.key); }
double error_of(const CaseRecord& record) { return run_s(record) / predicted_s(record) - 1; }

const CaseRecord* trial_of(const Answer& answer, std::string_view schedule, bool current) {
  for (const Trial& trial : answer.trials)
    if (trial.current == current && trial.record.schedule == schedule) return &trial.record;
  return nullptr;
}

const RankedSchedule* row_of(const Answer& answer, std::string_view schedule) {
  const auto row = std::ranges::find(answer.ranking, schedule, [](const auto& r) { return r.schedule->name; });
  return row == answer.ranking.end() || !row->refused.empty() ? nullptr : &*row;
}

bool ran_whole(const Answer& answer) {
  const ModelShape& model = answer.chosen->model;
  const bool as_layer = model.layers == 1 && model.micro_batches == 1 && model.shape.parallel.pp == 1;
  return answer.trial_layers == model.layers && !(answer.chosen->stack && as_layer);
}

double expected_s(const Answer& answer, const RankedSchedule& row, const CaseRecord& trial) {
  return ran_whole(answer) ? run_s(trial) + row.expert_sums_s : row.total_s() * (1 + error_of(trial));
}

std::string some_names(const std::vector<std::string_view>& names) {
  const std::span shown = std::span(names).first(std::min(names.size(), kNamesShown));
  const std::string rest = names.size() > shown.size() ? fmt::format(" and {} more", names.size() - shown.size()) : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), rest);
}

std::string refusals_of(const std::vector<RankedSchedule>& rows) {
  std::vector<std::pair<std::string, std::vector<std::string_view>>> names_by_reason;
  for (const RankedSchedule& row : rows) {
    if (row.refused.empty()) continue;
    std::string reason = row.refused;
    const std::string itself = fmt::format("schedule {} ", row.schedule->name);
    if (reason.starts_with(itself)) reason = reason.substr(itself.size());
    const auto known = std::ranges::find(names_by_reason, reason, [](const auto& r) { return r.first; });
    if (known == names_by_reason.end())
      names_by_reason.push_back({reason, {row.schedule->name}});
    else
      known->second.push_back(row.schedule->name);
  }
  std::string text;
  for (const auto& [reason, names] : names_by_reason)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ",
                        names.size() == rows.size() ? "every schedule" : some_names(names), reason);
  return text;
}

const RankedSchedule& recommended(const Answer& answer) {
  const RankedSchedule& first = answer.ranking.front();
  const bool larger_groups = answer.shapes == nullptr && first.too_large;
  require<Unsupported>(first.refused.empty(), "{}{}", refusals_of(answer.ranking),
                       larger_groups ? "; --shape auto looks for groups that hold it" : "");
  const auto ran_s = [&](const RankedSchedule& row) -> std::optional<double> {
    const CaseRecord* trial = trial_of(answer, row.schedule->name);
    return trial && ran_well(*trial) ? std::optional(expected_s(answer, row, *trial)) : std::nullopt;
  };
  const RankedSchedule* best = &first;
  std::optional<double> best_s = ran_s(first);
  for (const RankedSchedule& row : answer.ranking) {
    if (!row.refused.empty() || same_time(row.total_s(), best->total_s())) continue;
    const std::optional<double> row_s = ran_s(row);
    if (best_s && row_s && *row_s < *best_s * (1 - kClearlyFaster)) best = &row, best_s = row_s;
  }
  return *best;
}

bool doubtful(const Answer& answer) {
  const RankedSchedule& use = recommended(answer);
  const CaseRecord* trial = trial_of(answer, use.schedule->name);
  return !weak_rows(use.notes).empty() || (trial != nullptr && !ran_well(*trial));
}

}  // namespace moe::tuner
