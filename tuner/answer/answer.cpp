#include "tuner/answer/answer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/ranges.h>
#include <span>

#include "commands/shared/results_json.h"
#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/registry.h"
#include "moe/record/pass_times.h"
#include "tuner/answer/current.h"
#include "tuner/answer/framework_plans.h"

namespace moe::tuner {
namespace {

constexpr size_t kNamesShown = 3;        // number of names shown if schedules are refused for the same reason
constexpr double kClearlyFaster = 0.01;  // least gain, as a share, that replaces the plan

// Returns the seconds of the whole layer or model, given the seconds `trial_s` of the layers that the trial ran.
double whole_s(const Answer& answer, const RankedSchedule& row, const CaseRecord& trial, double trial_s) {
  return ran_all_layers(answer) ? trial_s + row.total_s() - predicted_s(trial)
                                : row.total_s() * trial_s / predicted_s(trial);
}

// Returns the sound run whose error is largest; null if no run is sound.
const CaseRecord* largest_error_trial(const Answer& answer) {
  const CaseRecord* farthest = nullptr;
  for (const Trial& trial : answer.trials)
    if (is_sound_run(trial.record) &&
        (farthest == nullptr || std::abs(error_of(trial.record)) > std::abs(error_of(*farthest))))
      farthest = &trial.record;
  return farthest;
}

}  // namespace

CurrentSchedule current_from(const std::string& text) {
  CurrentSchedule current;
  const size_t colon = text.find(':');
  current.schedule = &find_named(all_schedules(), text.substr(0, colon), "--current");
  if (colon == std::string::npos) return current;
  const std::string degrees = text.substr(colon + 1);
  const size_t second = degrees.find(':');
  const auto whole = [&](std::string_view word) {
    int value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    require<BadInput>(
        error == std::errc{} && end == word.data() + word.size() && value >= 1 && value <= 4096,
        "--current: found '{}', expected SCHEDULE, SCHEDULE:R or SCHEDULE:R_F:R_B, degrees from 1 to 4096", text);
    return value;
  };
  current.degree_forward = whole(std::string_view(degrees).substr(0, second));
  current.degree_backward =
      second == std::string::npos ? current.degree_forward : whole(std::string_view(degrees).substr(second + 1));
  return current;
}

const CaseRecord* trial_of(const Answer& answer, std::string_view schedule, bool current) {
  for (const Trial& trial : answer.trials)
    if (trial.current == current && trial.record.schedule == schedule) return &trial.record;
  return nullptr;
}

const RankedSchedule* row_of(const Answer& answer, std::string_view schedule) {
  const auto row = std::ranges::find(answer.ranking, schedule, [](const auto& r) { return r.schedule->name; });
  return row == answer.ranking.end() || row->refusal ? nullptr : &*row;
}

bool ran_all_layers(const Answer& answer) {
  const ModelShape& model = answer.chosen->model;
  const bool as_layer = model.layers == 1 && model.micro_batches == 1 && model.shape.parallel.pp == 1;
  return answer.trial_layers == model.layers && !(answer.chosen->stack && as_layer);
}

bool ran_partially(const RankedSchedule& row, const CaseRecord& trial) {
  constexpr double kSame = 1e-6;  // relative difference below which times count as equal
  return row.total_s() > predicted_s(trial) * (1 + kSame);
}

double expected_s(const Answer& answer, const RankedSchedule& row, const CaseRecord& trial) {
  return whole_s(answer, row, trial, run_s(trial));
}

bool clearly_faster(const Answer& answer, const RankedSchedule& row, const RankedSchedule& than) {
  const CaseRecord *own = trial_of(answer, row.schedule->name), *other = trial_of(answer, than.schedule->name);
  if (own == nullptr || other == nullptr || !is_sound_run(*own) || !is_sound_run(*other)) return false;
  const std::optional<Interval> own_s = median_interval_s(*own), other_s = median_interval_s(*other);
  return own_s && other_s && whole_s(answer, row, *own, own_s->high) < whole_s(answer, than, *other, other_s->low) &&
         expected_s(answer, row, *own) < expected_s(answer, than, *other) * (1 - kClearlyFaster);
}

std::string some_names(const std::vector<std::string_view>& names) {
  const std::span shown = std::span(names).first(std::min(names.size(), kNamesShown));
  const std::string rest = names.size() > shown.size() ? fmt::format(" and {} more", names.size() - shown.size()) : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), rest);
}

std::vector<std::string> refusals_of(const std::vector<RankedSchedule>& rows) {
  std::vector<std::pair<std::string, std::vector<std::string_view>>> names_by_reason;
  for (const RankedSchedule& row : rows) {
    if (row.is_usable()) continue;
    const bool of_schedule = row.refusal->subject.starts_with("schedule ");  // the schedule or one of its variants
    std::string reason = of_schedule ? row.refusal->brief() : row.refusal->text();
    const auto known = std::ranges::find(names_by_reason, reason, [](const auto& r) { return r.first; });
    if (known == names_by_reason.end())
      names_by_reason.push_back({reason, {row.schedule->name}});
    else
      known->second.push_back(row.schedule->name);
  }
  std::vector<std::string> texts;
  for (const auto& [reason, names] : names_by_reason)
    texts.push_back(fmt::format("{}: {}", names.size() == rows.size() ? "every schedule" : some_names(names), reason));
  return texts;
}

const RankedSchedule& recommended(const Answer& answer) {
  const RankedSchedule& first = answer.ranking.front();
  const bool larger_groups =
      answer.shapes == nullptr && first.refusal && first.refusal->kind == Refusal::Kind::too_large;
  require<Unsupported>(first.is_usable(), "{}{}", fmt::join(refusals_of(answer.ranking), "; "),
                       larger_groups ? "; --shape auto searches groups in which it fits" : "");
  const RankedSchedule* best = &first;
  for (const RankedSchedule& row : answer.ranking)
    if (row.is_usable() && !is_equally_fast(row.total_s(), best->total_s()) && clearly_faster(answer, row, *best))
      best = &row;
  return *best;
}

double worst_error(const Answer& answer) {
  const CaseRecord* farthest = largest_error_trial(answer);
  return farthest == nullptr ? 0 : std::abs(error_of(*farthest));
}

std::string large_error_text(const Answer& answer) {
  const double worst = worst_error(answer);
  if (worst <= kLargeError) return {};
  const CaseRecord& farthest = *largest_error_trial(answer);
  if (error_of(farthest) < 0 && answer.prices_slowdown - 1 > worst / 2)
    return fmt::format(
        "runs are up to {:.0f} % off: while prices were measured, cores were slow (a probe took {:.2f} times "
        "its best time since then); measure again",
        100 * worst, answer.prices_slowdown);
  const double slowdown = core_slowdown(farthest);
  if (error_of(farthest) > 0 && slowdown - 1 > worst / 2)
    return fmt::format(
        "runs are up to {:.0f} % off: cores were slow during runs (a probe took {:.2f} times its best time)",
        100 * worst, slowdown);
  return fmt::format(
      "runs are up to {:.0f} % off: ranks may share cores, or other load slows them ({} doctor finds causes)",
      100 * worst, program_command());
}

bool is_doubtful(const Answer& answer) {
  const RankedSchedule& use = recommended(answer);
  const CaseRecord* trial = trial_of(answer, use.schedule->name);
  return !weak_rows(use.notes).empty() || (trial != nullptr && !is_sound_run(*trial)) ||
         worst_error(answer) > kLargeError;
}

Json json_of(const commands::ChosenModel& chosen, const Profile& profile, const RankedSchedule& row) {
  Json json{{"schedule", row.schedule->name}, {"status", row.is_usable() ? "ok" : "unsupported"}};
  if (row.refusal) {
    json["reason"] = row.refusal->text();
    return json;
  }
  json["variant"] = row.variant ? Json(row.variant->name) : Json(nullptr);
  json["degree_forward"] = row.degree_forward;
  json["degree_backward_least"] = row.degrees_backward.first;
  json["degree_backward_most"] = row.degrees_backward.second;
  json["gar_in_moe_bytes"] = row.gar_in_moe_bytes;
  if (row.gar_after_bytes > 0) json["gar_after_bytes"] = row.gar_after_bytes;
  json["forward_s"] = row.forward_s;
  json["backward_s"] = row.backward_s;
  json["expert_sums_s"] = row.expert_sums_s;
  json["head_s"] = row.head_s;
  json["total_s"] = row.total_s();
  set_rates(rates_of(chosen, profile, row.total_s()), [&](const char* key, double value) { json[key] = value; });
  json["bound_s"] = row.bound_s;
  json["gap"] = row.gap;
  json["memory_bytes"] = row.memory_bytes;
  json["hidden"] = row.hidden;
  json["critical"] = Json::object();
  for (const auto& [kind, share] : row.critical) json["critical"][kind] = share;
  return json;
}

namespace {

Json json_of(const Answer& answer, const RankedSchedule& row) { return json_of(*answer.chosen, *answer.profile, row); }

Json json_of(const Answer& answer, const FrameworkPlans& plans) {
  const RankedShape* best = best_of(answer, plans);
  if (best == nullptr)
    return {{"framework", plans.framework->key}, {"status", "unsupported"}, {"reason", plans.refusal->text()}};
  commands::ChosenModel chosen = *answer.chosen;
  chosen.model = best->model;
  Json json{{"framework", plans.framework->key}};
  json.update(json_of(chosen, *answer.profile, best->best));
  json.update(shape_json(best->model));
  json["search_gap"] = plans.gap;
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
  if (was_timed(record)) json["measured_s"] = run_s(record);
  if (!record.reason.empty()) json["reason"] = record.reason;
  return json;
}

}  // namespace

Json json_of(const Answer& answer) {
  const RankedSchedule& use = recommended(answer);
  Json ranking = Json::array(), steps = Json::array(), trials = Json::array(), frameworks = Json::array();
  for (const RankedSchedule& row : answer.ranking) ranking.push_back(json_of(answer, row));
  for (const Trial& trial : answer.trials) trials.push_back(json_of(trial));
  for (const FrameworkPlans& plans : answer.plans_by_framework) frameworks.push_back(json_of(answer, plans));
  for (const Neighbour& n : answer.neighbours)
    steps.push_back(
        {{"phase", n.phase ? Json(name_of(*n.phase)) : Json("both")}, {"degree", n.degree}, {"slower", n.slower}});
  const ModelShape& model = answer.chosen->model;
  Json json{{"cluster", answer.cluster},
            {"emulated", answer.emulated},
            {"model", answer.chosen->name},
            {"layers", model.layers},
            {"micro_batches", model.whole_micro_batches()},
            {"pipeline", name_of(model.order)},
            {"virtual_stages", model.split().virtual_stages},
            {"layer", commands::to_json(model.shape)},
            {"defaults", answer.defaults},
            {"replaced_mixers", answer.chosen->replaced_mixers},
            {"framework", answer.framework ? Json(answer.framework->key) : Json(nullptr)},
            {"shapes", answer.shapes ? json_of(*answer.shapes) : Json(nullptr)},
            {"use", json_of(answer, use)},
            {"verdict", verdict_of(answer)},
            {"notes", texts_of(use.notes)},
            {"doubtful", is_doubtful(answer)},
            {"ranking", ranking},
            {"frameworks", frameworks},
            {"current", answer.walk ? walk_json(answer) : Json(nullptr)},
            {"neighbours", steps},
            {"trial_layers", answer.trial_layers},
            {"trials", trials},
            {"records", answer.records_path},
            {"profile", answer.profile_path},
            {"trace", answer.trace_path}};
  commands::add_layer_kinds(json, model.dense, model.whole, model.layers);
  return json;
}

}  // namespace moe::tuner
