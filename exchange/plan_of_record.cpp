#include "exchange/plan_of_record.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "exchange/formats.h"
#include "exchange/tuned_layer.h"
#include "moe/base/check.h"
#include "moe/base/file_text.h"
#include "moe/base/json_input.h"
#include "moe/base/log.h"
#include "moe/export/plan_json.h"
#include "moe/search/layer_search.h"
#include "moe/search/within_memory.h"
#include "verbs/plan_file.h"
#include "verbs/recorded_layer.h"
#include "verbs/selection.h"

namespace moe::exchange {
namespace {

constexpr double kSameSeconds = 1e-6;  // relative

// Returns whether degrees and the split of gradients are all that the schedule decides.
bool is_told_by_records(const Schedule& schedule) {
  return schedule.variants.empty() && !schedule.searched_order && !in_pieces(schedule) && !schedule.packs_experts &&
         schedule.gradients != GradientPolicy::beside_dense;
}

std::optional<Profile> profile_for(const std::string& asked, const std::string& cluster) {
  if (!asked.empty()) return find_profile(asked);
  try {
    return find_profile(cluster);
  } catch (const BadInput&) {
    return std::nullopt;
  }
}

TimedCase chosen_case_of(const ExportOptions& options) {
  std::vector<TimedCase> cases = timed_cases(options.file, options.only, true);
  const auto of_schedule = [&](const TimedCase& c) {
    return options.schedule.empty() || c.record.schedule == options.schedule;
  };
  if (std::ranges::none_of(cases, of_schedule)) cases = timed_cases(options.file, options.only, false);
  const auto chosen = std::ranges::find_if(cases, of_schedule);
  require<BadInput>(chosen != cases.end(), "--schedule: found {}, expected one that {} has an ok case of",
                    options.schedule, options.file);
  return *chosen;
}

// Says where the plan is not the one that the record's prediction is of.
void compare_times(const CaseRecord& record, const Profile& profile, const Plan& plan) {
  if (!record.prediction.has("total_s")) return;
  const double recorded_s = record.prediction.number("total_s", record.where);
  const LayerPricer pricer(profile, plan.shape, {true, "a plan out of records"});
  const verbs::PlanTimes times = verbs::times_of(plan, pricer);
  const double ratio = (times.forward_s + times.backward_s) / recorded_s;
  if (std::abs(ratio - 1) > kSameSeconds)
    log_warning(
        fmt::format("{}: the plan takes {:.6f} times what the record predicts: it is another one, or {} is "
                    "another profile than the record's",
                    record.where, ratio, profile.name));
}

Plan plan_of_case(const CaseRecord& record, const std::optional<Profile>& profile) {
  require<BadInput>(!record.parameters.has("plan"),
                    "{}: found the record of a plan's file, expected that file in its place", record.where);
  const Schedule& schedule = find_schedule(record.schedule);
  const LayerCase shape = verbs::shape_of(record.parameters, record.where);
  if (is_told_by_records(schedule)) {
    const int64_t split =
        record.prediction.has("gar_in_moe_bytes") ? record.prediction.whole("gar_in_moe_bytes", record.where) : 0;
    Decision decision = with_split(schedule, record.degree_forward, record.degree_backward, split);
    if (record.prediction.has("gar_after_bytes"))
      decision.gar_after_bytes = record.prediction.whole("gar_after_bytes", record.where);
    return build_plan(schedule, shape, decision);
  }
  require<BadInput>(
      profile.has_value(),
      "--cluster: found none, and {} names no profile; schedule {} decides more than records say, expected "
      "the profile that it was tuned on",
      record.where, schedule.name);
  const LayerPricer pricer(*profile, shape, {true, "a plan out of records"});
  LayerSearch search;
  const LayerResult result =
      search.tune(schedule, pricer, within_memory(verbs::degrees_of(record), profile->memory_bytes));
  log_info(fmt::format("{}: what no record says is decided again on {}", schedule.name, profile->name));
  return build_plan(schedule, shape, result.decision);
}

}  // namespace

bool is_plan(const std::string& path) {
  if (first_letter(path) != '{') return false;
  const auto json = json_if_valid(text_of_file(path, "records or a plan"));
  return json && json->is_object() && json->contains("format");
}

NamedPlan plan_of(const ExportOptions& options) {
  if (is_plan(options.file)) {
    require<BadInput>(options.only.empty() && options.schedule.empty(),
                      "{}: found a plan beside it, which is one layer's under one schedule; expected records",
                      options.only.empty() ? "--schedule" : "--only");
    std::optional<Profile> profile;
    if (!options.cluster.empty()) profile = find_profile(options.cluster);
    return {read_plan(options.file), profile};
  }
  const TimedCase chosen = chosen_case_of(options);
  const std::optional<Profile> profile =
      profile_for(options.cluster, chosen.record.parameters.text("cluster", chosen.record.where));
  NamedPlan named{plan_of_case(chosen.record, profile), profile};
  if (profile) compare_times(chosen.record, *profile, named.plan);
  return named;
}

void write_plan_document(const ExportOptions& options, std::ostream& out) {
  const Plan plan = plan_of(options).plan;
  write_plan(plan, out);
  log_info(fmt::format("plan: {} at r {}/{}, {} tasks on {} lanes; times are left out", plan.schedule,
                       plan.degree_forward, plan.degree_backward, plan.tasks().size(), plan.structure->lanes.size()));
}

}  // namespace moe::exchange
