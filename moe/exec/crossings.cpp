#include "moe/exec/crossings.h"

#include <algorithm>

#include "moe/base/check.h"

namespace moe {
namespace {

void check_issue_order(const Structure& structure) {
  const int tasks = static_cast<int>(structure.tasks.size());
  std::vector<int> queued(structure.tasks.size(), 0);
  for (size_t lane = 0; lane < structure.lanes.size(); ++lane) {
    int last = -1;
    for (const int id : structure.lanes[lane].queue) {
      require<WrongResult>(id >= 0 && id < tasks, "lane {} queues task {} of {}", lane, id, tasks);
      const Task& task = structure.tasks[static_cast<size_t>(id)];
      require<WrongResult>(task.lane == static_cast<int>(lane), "{} belongs to lane {} but is queued on lane {}",
                           task.name(), task.lane, lane);
      require<WrongResult>(id > last, "{} (task {}) is queued after task {}, which is issued later", task.name(), id,
                           last);
      last = id;
      ++queued[static_cast<size_t>(id)];
    }
  }
  for (int id = 0; id < tasks; ++id) {
    const Task& task = structure.tasks[static_cast<size_t>(id)];
    require<WrongResult>(task.id == id, "{} has id {} at place {}", task.name(), task.id, id);
    require<WrongResult>(queued[static_cast<size_t>(id)] == 1, "{} is on {} lanes' queues, expected 1", task.name(),
                         queued[static_cast<size_t>(id)]);
    for (const int before : task.after)
      require<WrongResult>(before >= 0 && before < id, "{} (task {}) waits for task {}, which is not issued before it",
                           task.name(), id, before);
  }
}

}  // namespace

std::vector<std::vector<int>> crossings_of(const Structure& structure) {
  check_issue_order(structure);
  const size_t lanes = structure.lanes.size();
  // done_by[t][l]: the last task of lane l that is surely over when t is over; reached[l]: t of the lane's last task.
  std::vector<std::vector<int>> done_by(structure.tasks.size()), crossings(structure.tasks.size());
  std::vector<int> last_on(lanes, -1);
  for (const Task& task : structure.tasks) {
    const auto lane = static_cast<size_t>(task.lane);
    std::vector<int> done(lanes, -1);
    if (last_on[lane] >= 0) done = done_by[static_cast<size_t>(last_on[lane])];
    // Later ones come first, since they imply more.
    std::vector<int> after = task.after;
    std::sort(after.rbegin(), after.rend());
    for (const int before : after) {
      const auto other = static_cast<size_t>(structure.tasks[static_cast<size_t>(before)].lane);
      if (done[other] >= before) continue;
      crossings[static_cast<size_t>(task.id)].push_back(before);
      const std::vector<int>& implied = done_by[static_cast<size_t>(before)];
      for (size_t l = 0; l < lanes; ++l) done[l] = std::max(done[l], implied[l]);
    }
    done[lane] = task.id;
    last_on[lane] = task.id;
    done_by[static_cast<size_t>(task.id)] = std::move(done);
  }
  return crossings;
}

}  // namespace moe
