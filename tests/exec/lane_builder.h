#pragma once
// Structures by hand: tasks on lanes, with what they wait for.
#include <memory>
#include <utility>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

class LaneBuilder {
 public:
  explicit LaneBuilder(int lanes) { structure_.lanes.resize(lanes); }

  int add(int lane, std::vector<int> after = {}, GroupKind group = GroupKind::none) {
    Task task;
    task.id = static_cast<int>(structure_.tasks.size());
    task.kind = group == GroupKind::none ? TaskKind::expert : TaskKind::dispatch;
    task.chunk = task.id;
    task.lane = lane;
    task.group = group;
    task.after = std::move(after);
    structure_.lanes[lane].queue.push_back(task.id);
    structure_.tasks.push_back(std::move(task));
    return structure_.tasks.back().id;
  }

  Structure& structure() { return structure_; }
  std::shared_ptr<const Structure> build() const { return std::make_shared<const Structure>(structure_); }

 private:
  Structure structure_;
};

/// Returns a structure by the seed alone: up to `lanes` lanes and `tasks` tasks, each waiting for up to 4 earlier ones.
LaneBuilder random_structure(uint64_t seed, int lanes, int tasks);

}  // namespace moe
