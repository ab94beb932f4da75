#include "commands/report/model_timelines.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "commands/shared/chosen_model.h"
#include "commands/shared/frameworks.h"
#include "moe/base/check.h"
#include "moe/search/model_search.h"

namespace moe::report {
namespace {

constexpr size_t kDifferent = 3;       // number of schedules with different times that are drawn
constexpr double kSameSeconds = 1e-6;  // relative difference below which times count as equal
constexpr int kTimeDigits = 7;         // digits of a task's start and end

double pass_s(const CaseRecord& plan) {
  return plan.prediction.number("forward_s", plan.where) + plan.prediction.number("backward_s", plan.where);
}

// Returns the rows to draw, fastest first: all baselines, and of other rows with equal times only the first.
std::vector<size_t> drawn_rows(const RecordTables& tables, size_t layer) {
  std::vector<size_t> rows;
  for (size_t row = 0; row < tables.rows().size(); ++row)
    if (const LayerRow& of = tables.rows()[row]; of.layer == layer && of.plan != nullptr) rows.push_back(row);
  std::ranges::stable_sort(rows, {}, [&](size_t row) { return pass_s(*tables.rows()[row].plan); });
  std::vector<size_t> drawn;
  size_t different = 0;
  double last_s = 0;
  for (const size_t row : rows) {
    const double seconds = pass_s(*tables.rows()[row].plan);
    const bool fresh = seconds > last_s * (1 + kSameSeconds);
    different += fresh ? 1 : 0;
    last_s = seconds;
    if ((fresh && different <= kDifferent) || commands::is_baseline(tables.rows()[row].schedule)) drawn.push_back(row);
  }
  return drawn;
}

// Returns the plan of the record at the degrees that the search finds; if its time differs, at the record's degrees.
ModelResult planned_again(const CaseRecord& plan, const LayerPricer& pricer, const ModelShape& model) {
  commands::ChosenModel chosen;
  chosen.model = model;
  chosen.stack = true;
  if (plan.parameters.has("vocabulary")) chosen.vocabulary = plan.parameters.whole("vocabulary", plan.where);
  chosen.tied_embedding =
      plan.parameters.has("tied_embedding") && plan.parameters.text("tied_embedding", plan.where) == "yes";
  const Schedule& schedule = find_schedule(plan.schedule);
  const auto tuned = [&](const DegreeChoice& choice) {
    return ModelSearch(false).tune(schedule, pricer, model,
                                   commands::within_memory(choice, pricer.profile().memory_bytes, chosen));
  };
  DegreeChoice choice = commands::degrees_of(plan);
  const auto is_recorded = [&](const ModelResult& result) {
    return std::abs(result.total_s() / pass_s(plan) - 1) <= kSameSeconds;
  };
  DegreeChoice free = choice;
  free.forward = free.backward = 0;
  ModelResult result = tuned(free);
  return is_recorded(result) ? std::move(result) : tuned(choice);
}

int busiest_stage(const ModelResult& result) {
  const std::vector<Lane>& lanes = result.plan.structure->lanes;
  size_t busiest = 0;
  for (size_t lane = 0; lane < lanes.size(); ++lane)
    if (lanes[lane].kind == LaneKind::compute &&
        result.timeline.lane_busy_s[lane] > result.timeline.lane_busy_s[busiest])
      busiest = lane;
  return lanes[busiest].stage;
}

Json tasks_json(const ModelResult& result, std::optional<int> stage, bool stages) {
  Columns columns;
  const std::vector<Lane>& lanes = result.plan.structure->lanes;
  for (const Task& task : result.plan.tasks()) {
    const Lane& lane = lanes[task.lane];
    if (stage && lane.stage != *stage) continue;
    columns.add_row();
    columns.set("kind", name_of(task.kind));
    columns.set("phase", name_of(task.phase));
    columns.set("lane",
                stages ? fmt::format("{} {}", lane.stage, name_of(lane.kind)) : std::string(name_of(lane.kind)));
    columns.set("chunk", task.chunk);
    columns.set("chunks", task.chunks);
    columns.set("layer", task.layer);
    columns.set("start_s", rounded(result.timeline.start_s[task.id], kTimeDigits));
    columns.set("end_s", rounded(result.timeline.end_s[task.id], kTimeDigits));
  }
  return columns.json();
}

}  // namespace

bool is_stack(const Fields& parameters) {
  return std::ranges::any_of(std::array{"layers", "micro_batches", "pp"}, [&](const char* name) {
    return parameters.has(name) && parameters.whole(name, name) > 1;
  });
}

Json model_timelines(const RecordTables& tables, size_t layer, const Profile& profile, bool nearest,
                     std::set<std::string>& notes) {
  Json all = Json::array();
  for (const size_t row : drawn_rows(tables, layer)) {
    const CaseRecord& plan = *tables.rows()[row].plan;
    try {
      const ModelShape model = commands::model_of(plan.parameters, plan.where);
      const LayerPricer pricer(profile, model.shape, {nearest, "--nearest", nearest});
      const ModelResult result = planned_again(plan, pricer, model);
      const bool stages = model.shape.parallel.pp > 1;
      const size_t tasks = result.plan.tasks().size();
      std::optional<int> stage;
      if (stages && tasks > kMaxDrawnTasks) stage = busiest_stage(result);
      const size_t drawn = stage ? tasks / static_cast<size_t>(model.shape.parallel.pp) : tasks;
      if (drawn > kMaxDrawnTasks) {
        notes.insert(fmt::format("{}: no timeline: its plan has {} tasks; simulate --trace FILE writes them",
                                 plan.schedule, tasks));
        continue;
      }
      if (stage)
        notes.insert(fmt::format("{}: the timeline has stage {} of {} alone, which computes most: {} tasks in all",
                                 plan.schedule, *stage, model.shape.parallel.pp, tasks));
      if (const double ratio = result.total_s() / pass_s(plan); std::abs(ratio - 1) > kSameSeconds)
        notes.insert(
            fmt::format("{}: the drawn plan takes {:.4f} times what its record says: decided or priced by "
                        "what the record does not hold",
                        plan.schedule, ratio));
      all.push_back({{"row", row}, {"tasks", tasks_json(result, stage, stages)}});
    } catch (const BadInput& fault) {
      notes.insert(fmt::format("{}: no timeline: {}", plan.schedule, fault.what()));
    }
  }
  return all;
}

}  // namespace moe::report
