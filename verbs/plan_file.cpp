#include "verbs/plan_file.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/export/plan_json.h"

namespace moe {
namespace {

int64_t bytes_in_moe(const Plan& plan) {
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

}  // namespace

Plan plan_of_file(const std::string& path, int nodes, int ranks_per_node) {
  Plan plan = read_plan(path);
  const ParallelShape& p = plan.shape.parallel;
  require<BadInput>(p.nodes == nodes && p.ranks_per_node == ranks_per_node,
                    "{}: parallel: found {} nodes x {} ranks, expected {} x {} as the cluster has", path, p.nodes,
                    p.ranks_per_node, nodes, ranks_per_node);
  return plan;
}

PlanTimes times_of(const Plan& plan, const Timeline& timeline) {
  PlanTimes times;
  for (const Task& task : plan.tasks())
    if (task.phase == Phase::forward)
      times.forward_s = std::max(times.forward_s, timeline.end_s[static_cast<size_t>(task.id)]);
  times.backward_s = timeline.makespan_s - times.forward_s;
  times.gar_in_moe_bytes = bytes_in_moe(plan);
  return times;
}

}  // namespace moe
