#include "planner/timeline_records.h"

#include <algorithm>

#include "moe/search/layer_search.h"
#include "verbs/sweep_records.h"

namespace moe::planner {
namespace {

CaseRecord record_of(std::string key, const LayerResult& result, const Fields& parameters) {
  CaseRecord record = verbs::planned_record(std::move(key), result);
  record.parameters = parameters;
  return record;
}

constexpr int kSweptDegrees = 64;  // a record each

int most_degree(const Schedule& schedule, const LayerPricer& pricer) {
  return schedule.degrees == DegreePolicy::one ? 1 : std::min(kSweptDegrees, largest_degree(pricer));
}

}  // namespace

std::vector<TaskTimes> task_times(const Plan& plan, const Timeline& timeline) {
  std::vector<TaskTimes> rows;
  for (const Task& task : plan.tasks()) {
    const size_t id = static_cast<size_t>(task.id);
    const LaneKind lane = plan.structure->lanes[static_cast<size_t>(task.lane)].kind;
    rows.push_back({task.name(), std::string(name_of(task.kind)), std::string(name_of(task.runs_in())),
                    std::string(name_of(lane)), task.layer, task.chunk, task.chunks, timeline.start_s[id],
                    timeline.end_s[id]});
  }
  return rows;
}

CaseRecord timeline_record(const LayerResult& result, const Plan& plan, const Timeline& timeline,
                           const Fields& parameters) {
  CaseRecord record = record_of(fmt::format("simulate/{}", result.schedule), result, parameters);
  const auto& lanes = plan.structure->lanes;
  for (size_t i = 0; i < lanes.size(); ++i)
    record.prediction.set(fmt::format("{}_busy_s", name_of(lanes[i].kind)), timeline.lane_busy_s[i]);
  record.timeline = task_times(plan, timeline);
  return record;
}

std::vector<CaseRecord> degree_records(const Schedule& schedule, const LayerPricer& pricer, const Fields& parameters) {
  std::vector<CaseRecord> records;
  LayerSearch search;
  for (int r = 1; r <= most_degree(schedule, pricer); ++r) {
    const LayerResult result = search.tune(schedule, pricer, {r, r});
    const std::string key = fmt::format("degrees/{}/{}", schedule.name, r);
    CaseRecord& record = records.emplace_back(record_of(key, result, parameters));
    record.prediction.set("degree_bound_forward_s", result.degree_bound.forward_s);
    record.prediction.set("degree_bound_backward_s", result.degree_bound.backward_s);
    record.prediction.set("free_bound_forward_s", result.bound.forward_s);
    record.prediction.set("free_bound_backward_s", result.bound.backward_s);
  }
  return records;
}

}  // namespace moe::planner
