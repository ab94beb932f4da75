#include "moe/search/micro_ops.h"

#include <algorithm>

namespace moe {

MicroOps freeze_micro_ops(const Structure& backward, std::span<const double> seconds, std::span<const double> pieces,
                          int lane, bool hold) {
  MicroOps result;
  std::vector<double> ends(backward.tasks.size()), lane_end(backward.lanes.size());
  double& on_lane = lane_end[static_cast<size_t>(lane)];
  int passed = 0;
  const auto start_next = [&](int gap) {
    on_lane += pieces[result.gaps.size()];
    result.gaps.push_back(gap);
  };
  for (const Task& task : backward.tasks) {
    double ready = 0;
    for (const int id : task.after) ready = std::max(ready, ends[static_cast<size_t>(id)]);
    if (task.lane == lane) {
      while (result.gaps.size() < pieces.size() && on_lane < ready && (passed > 0 || !hold)) start_next(passed);
      ++passed;
    }
    double& end = lane_end[static_cast<size_t>(task.lane)];
    end = ends[static_cast<size_t>(task.id)] = std::max(ready, end) + seconds[static_cast<size_t>(task.work_class)];
  }
  while (result.gaps.size() < pieces.size()) start_next(passed);
  result.seconds = *std::ranges::max_element(lane_end);
  return result;
}

}  // namespace moe
