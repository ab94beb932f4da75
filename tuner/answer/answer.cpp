#include "tuner/answer/answer.h"

#include <algorithm>
#include <charconv>

#include "moe/base/check.h"
#include "moe/base/registry.h"

namespace moe::tuner {

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

}  // namespace moe::tuner
