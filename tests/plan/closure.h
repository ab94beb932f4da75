#pragma once
// The order of a plan's tasks, task by task: what Ancestors says in less memory.
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

/// For each task, which others end before it begins: by dependencies, and by its lane's queue.
using Closure = std::vector<std::vector<bool>>;

inline Closure closure_of(const Plan& plan) {
  std::vector<std::vector<int>> edges;
  for (const Task& task : plan.tasks()) edges.push_back(task.after);
  for (const Lane& lane : plan.structure->lanes)
    for (size_t i = 1; i < lane.queue.size(); ++i) edges[lane.queue[i]].push_back(lane.queue[i - 1]);
  Closure before(edges.size(), std::vector<bool>(edges.size()));
  for (size_t i = 0; i < edges.size(); ++i)
    for (const int p : edges[i]) {
      const size_t from = static_cast<size_t>(p);
      for (size_t j = 0; j < from; ++j) before[i][j] = before[i][j] || before[from][j];
      before[i][from] = true;
    }
  return before;
}

}  // namespace moe
