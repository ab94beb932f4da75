#include "verbs/plan_file.h"

#include <algorithm>
#include <limits>

#include "moe/base/check.h"
#include "moe/cost/fluid_replay.h"
#include "moe/export/plan_json.h"
#include "moe/schedule/schedule.h"

namespace moe::verbs {
namespace {

// Counts the gradients that a schedule's search puts between tasks of the MoE part; pieces go where lanes are idle.
int64_t bytes_in_moe(const Plan& plan) {
  if (find_schedule(plan.schedule).gradients != GradientPolicy::adaptive) return 0;
  int first = -1, last = -1;
  for (const Task& task : plan.tasks()) {
    if (task.phase != Phase::backward || !is_chunked(task.kind)) continue;
    if (first < 0) first = task.id;
    last = task.id;
  }
  int64_t bytes = 0;
  for (const Task& task : plan.tasks())
    if (task.kind == TaskKind::gradient && task.id > first && task.id < last)
      bytes += plan.slices[static_cast<size_t>(task.slice)].bytes();
  return bytes;
}

// Returns the tasks of one phase and what they wait for in it, numbered anew.
Plan phase_of(const Plan& plan, Phase phase) {
  Structure part = *plan.structure;
  std::vector<int> place(plan.tasks().size(), -1);
  part.tasks.clear();
  for (const Task& task : plan.tasks())
    if (task.runs_in() == phase) {
      place[static_cast<size_t>(task.id)] = static_cast<int>(part.tasks.size());
      part.tasks.push_back(task);
    }
  const auto renumber = [&](std::vector<int>& ids) {
    for (int& id : ids) id = place[static_cast<size_t>(id)];
    std::erase(ids, -1);
  };
  for (Task& task : part.tasks) {
    task.id = place[static_cast<size_t>(task.id)];
    renumber(task.after);
  }
  for (Lane& lane : part.lanes) renumber(lane.queue);
  Plan alone = plan;
  alone.structure = std::make_shared<const Structure>(std::move(part));
  return alone;
}

// Returns the starts: tasks start when the last of those that they wait for ends: a timeline's own starts are rounded.
std::vector<double> starts_of(const Plan& plan, const std::vector<double>& end_s) {
  std::vector<double> start_s(end_s.size()), lane_end_s(plan.structure->lanes.size());
  for (const Task& task : plan.tasks()) {
    double& start = start_s[static_cast<size_t>(task.id)] = lane_end_s[static_cast<size_t>(task.lane)];
    for (const int id : task.after) start = std::max(start, end_s[static_cast<size_t>(id)]);
    lane_end_s[static_cast<size_t>(task.lane)] = end_s[static_cast<size_t>(task.id)];
  }
  return start_s;
}

double moe_seconds(const Plan& plan, const std::vector<double>& end_s, Phase phase) {
  const std::vector<double> start_s = starts_of(plan, end_s);
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  for (const Task& task : plan.tasks()) {
    if (task.phase != phase || task.again || !is_chunked(task.kind)) continue;
    begin = std::min(begin, start_s[static_cast<size_t>(task.id)]);
    end = std::max(end, end_s[static_cast<size_t>(task.id)]);
  }
  return std::max(0.0, end - begin);
}

}  // namespace

Plan plan_of_file(const std::string& path, int nodes, int ranks_per_node) {
  Plan plan = read_plan(path);
  const ParallelShape& p = plan.shape.parallel;
  require<BadInput>(p.nodes == nodes && p.ranks_per_node == ranks_per_node,
                    "{}: parallel: found {} nodes x {} ranks, expected {} x {} as the cluster has", path, p.nodes,
                    p.ranks_per_node, nodes, ranks_per_node);
  return plan;
}

PlanTimes times_of(const Plan& plan, const LayerPricer& pricer) {
  const std::vector<double> seconds = price(pricer, plan);
  const Contention& contention = pricer.profile().contention;
  const Timeline both = timeline_of(plan, seconds, contention);
  const std::vector<double> start_s = starts_of(plan, both.end_s);
  PlanTimes times;
  double begin_backward_s = both.makespan_s;
  for (const Task& task : plan.tasks()) {
    const size_t id = static_cast<size_t>(task.id);
    if (task.runs_in() == Phase::forward)
      times.forward_s = std::max(times.forward_s, both.end_s[id]);
    else
      begin_backward_s = std::min(begin_backward_s, start_s[id]);
  }
  times.backward_s = both.makespan_s - times.forward_s;
  times.moe_forward_s = moe_seconds(plan, both.end_s, Phase::forward);
  times.moe_backward_s = moe_seconds(plan, both.end_s, Phase::backward);
  times.gar_in_moe_bytes = bytes_in_moe(plan);
  if (begin_backward_s < times.forward_s) return times;
  const Plan backward = phase_of(plan, Phase::backward);
  const Timeline alone = timeline_of(backward, seconds, contention);
  times.backward_s = alone.makespan_s;
  times.moe_backward_s = moe_seconds(backward, alone.end_s, Phase::backward);
  return times;
}

}  // namespace moe::verbs
