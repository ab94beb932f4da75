#include "tests/plan/broken_plan.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <tuple>

#include "moe/base/check.h"

namespace moe::broken_plan {

LayerCase four_ranks() {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .top_k = 1};
  return complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
}

Plan good_plan(std::string_view schedule, const Decision& decision) {
  return build_plan(find_schedule(schedule), four_ranks(), decision);
}

Plan changed(const Plan& plan, const std::function<void(Structure&)>& change) {
  Structure structure = *plan.structure;
  change(structure);
  Plan result = plan;
  const auto description = [](const Task& t) {
    return std::tuple(t.kind, t.phase, t.is_recompute, t.micro_batch, t.layer, t.chunk, t.chunks, t.slice);
  };
  std::map<decltype(description(Task())), Work> works;
  for (const Task& task : plan.tasks()) works[description(task)] = plan.works.at(task.id);
  result.works.clear();
  for (size_t i = 0; i < structure.tasks.size(); ++i) {
    const auto known = works.find(description(structure.tasks[i]));
    result.works.push_back(known != works.end() ? known->second : plan.works.at(i));
  }
  result.structure = std::make_shared<const Structure>(std::move(structure));
  return result;
}

Task& task_of(Structure& s, Phase phase, TaskKind kind, int chunk) {
  for (Task& task : s.tasks)
    if (task.phase == phase && task.kind == kind && task.chunk == chunk) return task;
  throw std::logic_error("no such task");
}

void drop(Structure& s, int id) {
  const std::vector<int> before = s.tasks[id].after;
  s.tasks.erase(s.tasks.begin() + id);
  const auto moved = [id](int other) { return other > id ? other - 1 : other; };
  for (Task& task : s.tasks) {
    task.id = moved(task.id);
    if (std::erase(task.after, id) > 0) task.after.insert(task.after.end(), before.begin(), before.end());
    for (int& p : task.after) p = moved(p);
  }
  for (Lane& lane : s.lanes) {
    std::erase(lane.queue, id);
    for (int& p : lane.queue) p = moved(p);
  }
}

void move_to_lane(Structure& s, Task& task, int lane) {
  std::erase(s.lanes[task.lane].queue, task.id);
  task.lane = lane;
  auto& queue = s.lanes[lane].queue;
  queue.insert(std::ranges::upper_bound(queue, task.id), task.id);
}

std::string complaint(const Plan& plan) {
  try {
    check_plan(plan);
  } catch (const WrongResult& error) {
    return error.what();
  }
  return "no complaint";
}

void expect_named(const Plan& plan, const std::string& task, const std::string& rule) {
  const std::string text = complaint(plan);
  EXPECT_EQ(text.find("plan: " + task), 0u) << "expected task: " << task << "\n  found: " << text;
  EXPECT_NE(text.find(rule), std::string::npos) << "expected rule: " << rule << "\n  found: " << text;
}

void expect_broken_at(Phase phase, TaskKind kind, int chunk, const std::function<void(Structure&, Task&)>& change,
                      const std::string& rule) {
  std::string name;
  const Plan bad = changed(good_plan(), [&](Structure& s) {
    Task& task = task_of(s, phase, kind, chunk);
    change(s, task);
    name = task.name();
  });
  expect_named(bad, name, rule);
}

}  // namespace moe::broken_plan
