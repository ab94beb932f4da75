#include "moe/measure/overhead.h"

#include <mutex>

#include "moe/comm/local/local_world.h"
#include "moe/exec/executor.h"
#include "moe/measure/statistics.h"
#include "moe/schedule/schedule.h"

namespace moe {
namespace {

constexpr int kPasses = 50, kChain = 64, kSleeps = 40;
constexpr double kSleep_s = 1e-3;

class Nothing : public Binding {
 public:
  void issue(const Task&, Stream&, Pace) override {}
};

Structure layer_structure() {
  ParallelShape parallel;
  parallel.nodes = parallel.ranks_per_node = 2;
  const Schedule& schedule = find_schedule("fsmoe");
  return *build_plan(schedule, complete({}, parallel, Rounding::ragged), {8, 8, 0}).structure;
}

// Tasks in turn on two lanes, each waiting for the one before.
Structure chain_structure() {
  Structure chain;
  chain.lanes = {{LaneKind::compute, 0, false, false, {}}, {LaneKind::comm, 0, true, true, {}}};
  chain.classes.emplace_back();
  for (int i = 0; i < kChain; ++i) {
    Task task;
    task.id = i;
    task.lane = i % 2;
    if (i > 0) task.after = {i - 1};
    chain.lanes[static_cast<size_t>(task.lane)].queue.push_back(i);
    chain.tasks.push_back(task);
  }
  return chain;
}

// Median seconds of a pass, over all ranks' passes.
double pass_seconds(int ranks, const Structure& structure) {
  const auto shared = std::make_shared<const Structure>(structure);
  std::vector<double> seconds;
  std::mutex mutex;
  LocalWorld(ranks).run([&](int) {
    const auto device = make_cpu_device();
    Executor executor(*device, shared);
    Nothing nothing;
    for (int pass = 0; pass < kPasses; ++pass) {
      const double begin = now_s();
      executor.run(nothing);
      const double took = now_s() - begin;
      const std::lock_guard lock(mutex);
      seconds.push_back(took);
    }
  });
  return median(std::move(seconds));
}

double oversleep() {
  std::vector<double> late;
  for (int i = 0; i < kSleeps; ++i) {
    const double deadline = now_s() + kSleep_s;
    sleep_until_s(deadline);
    late.push_back(now_s() - deadline);
  }
  return median(std::move(late));
}

}  // namespace

Overhead measure_overhead(int ranks) {
  const Structure layer = layer_structure();
  Overhead o;
  o.ranks = ranks;
  o.tasks = static_cast<int>(layer.tasks.size());
  o.task_s = pass_seconds(ranks, layer) / o.tasks;
  o.crossing_s = pass_seconds(ranks, chain_structure()) / kChain;
  o.oversleep_s = oversleep();
  return o;
}

}  // namespace moe
