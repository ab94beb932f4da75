#include "moe/cost/critical_path.h"

#include <algorithm>
#include <limits>

namespace moe {

CriticalPath critical_path(const Structure& structure, std::span<const double> start_s, std::span<const double> end_s) {
  const size_t n = structure.tasks.size();
  CriticalPath path{std::vector<bool>(n), std::vector<double>(n)};
  if (n == 0) return path;
  std::vector<int> before(n, -1);  // on its lane
  for (const Lane& lane : structure.lanes)
    for (size_t i = 1; i < lane.queue.size(); ++i) before[static_cast<size_t>(lane.queue[i])] = lane.queue[i - 1];
  const auto waited_for = [&](size_t id, auto&& visit) {
    for (const int other : structure.tasks[id].after) visit(static_cast<size_t>(other));
    if (before[id] >= 0) visit(static_cast<size_t>(before[id]));
  };

  const auto last = std::ranges::max_element(end_s);
  std::vector<double> latest(n, *last);  // end of a task that makes the run no longer
  for (size_t id = n; id-- > 0;) {       // tasks are in issue order
    double ready_s = -std::numeric_limits<double>::infinity();
    waited_for(id, [&](size_t other) { ready_s = std::max(ready_s, end_s[other]); });
    const double latest_ready = latest[id] - (end_s[id] - std::min(ready_s, start_s[id]));
    waited_for(id, [&](size_t other) { latest[other] = std::min(latest[other], latest_ready); });
  }
  for (size_t id = 0; id < n; ++id) path.slack_s[id] = std::max(0.0, latest[id] - end_s[id]);

  size_t at = static_cast<size_t>(last - end_s.begin());
  for (bool further = true; further;) {
    path.on_path[at] = true;
    size_t next = at;
    waited_for(at, [&](size_t other) {
      if (next == at || end_s[other] > end_s[next]) next = other;
    });
    further = next != at;
    at = next;
  }
  return path;
}

}  // namespace moe
