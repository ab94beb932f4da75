#include "moe/exec/overhead.h"

#include <algorithm>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/comm/local/local_world.h"
#include "moe/device/recorded_work.h"
#include "moe/exec/executor.h"

namespace moe {
namespace {

class EmptyWork final : public Binding {
 public:
  void issue(const Task&, Stream& stream, Pace) override {
    stream.launch([](void*) {});
  }
};

/// Launches an empty kernel in each task, because a recorded task without a kernel would cost nothing.
class EmptyKernels final : public Binding {
 public:
  void issue(const Task&, Stream& stream, Pace) override { launch_nothing(stream); }
  bool can_issue_ahead() const override { return true; }
  int pass_variants() const override { return 1; }
};

int add(Structure& structure, int lane, std::vector<int> after) {
  Task task;
  task.id = static_cast<int>(structure.tasks.size());
  task.kind = TaskKind::expert;
  task.chunk = task.id;
  task.lane = lane;
  task.after = std::move(after);
  structure.lanes[lane].queue.push_back(task.id);
  structure.tasks.push_back(std::move(task));
  return structure.tasks.back().id;
}

/// Makes chunks that go through inter, intra, compute, intra, inter as D, G, E, S, C do; each overlaps the one before.
Structure chunk_pipeline(int chunks) {
  enum { inter, intra, compute };
  Structure structure;
  structure.lanes = {{.kind = LaneKind::inter, .queue = {}},
                     {.kind = LaneKind::intra, .queue = {}},
                     {.kind = LaneKind::compute, .queue = {}}};
  int expert_before = -1;
  for (int chunk = 0; chunk <= chunks; ++chunk) {
    const int expert_of_last = expert_before;
    if (chunk < chunks) {
      const int dispatched = add(structure, inter, {});
      const int gathered = add(structure, intra, {dispatched});
      expert_before = add(structure, compute, {gathered});
    }
    if (chunk > 0) {
      const int scattered = add(structure, intra, {expert_of_last});
      add(structure, inter, {scattered});
    }
  }
  return structure;
}

/// Makes a chain of tasks, each on another lane than the task before.
Structure ping_pong(int tasks) {
  Structure structure;
  structure.lanes = {{.kind = LaneKind::compute, .queue = {}}, {.kind = LaneKind::inter, .queue = {}}};
  for (int id = 0; id < tasks; ++id) add(structure, id % 2, id == 0 ? std::vector<int>{} : std::vector<int>{id - 1});
  return structure;
}

double last_end(const RunTimes& times) {
  double end = 0;
  for (const TaskTime& task : times.tasks) end = std::max(end, task.end_s);
  return times.begin_s + end;
}

struct Span {
  double begin_s = 0, end_s = 0;
};

struct Measured {
  int ranks = 1, runs = 1;
  DeviceKind kind = DeviceKind::cpu;
};

/// Lets every rank run `structure` `runs` times, in step; each run is handed to keep(rank, run, times).
template <class Keep>
void run_on_ranks(const Measured& what, const std::shared_ptr<const Structure>& structure, Keep&& keep) {
  LocalWorld world(what.ranks);
  world.run([&](int rank) {
    const auto device = make_device(what.kind), cpu = make_cpu_device();
    const auto start = cpu->make_stream("start");
    const auto all = world.communicator(rank);
    EmptyWork empty;
    Executor executor(*device, structure);
    executor.run(empty);
    for (int run = 0; run < what.runs; ++run) {
      all->barrier({.stream = *start});
      start->synchronize();
      keep(static_cast<size_t>(rank), static_cast<size_t>(run), executor.run(empty));
    }
  });
}

double measure_task_s(const Measured& what) {
  const auto structure = std::make_shared<const Structure>(chunk_pipeline(40));
  const auto ranks = static_cast<size_t>(what.ranks), runs = static_cast<size_t>(what.runs);
  std::vector<std::vector<Span>> spans(ranks, std::vector<Span>(runs));
  run_on_ranks(what, structure, [&](size_t rank, size_t run, const RunTimes& times) {
    spans[rank][run] = {times.begin_s, last_end(times)};
  });
  std::vector<double> samples;
  for (size_t run = 0; run < runs; ++run) {
    Span whole = spans[0][run];
    for (const auto& rank : spans)
      whole = {std::min(whole.begin_s, rank[run].begin_s), std::max(whole.end_s, rank[run].end_s)};
    samples.push_back((whole.end_s - whole.begin_s) / static_cast<double>(structure->tasks.size()));
  }
  return upper_median(std::move(samples));
}

double measure_crossing_s(const Measured& what) {
  const auto structure = std::make_shared<const Structure>(ping_pong(100));
  std::vector<std::vector<double>> gaps(what.ranks);
  run_on_ranks(what, structure, [&](size_t rank, size_t, const RunTimes& times) {
    for (size_t id = 1; id < times.tasks.size(); ++id)
      gaps[rank].push_back(times.tasks[id].start_s - times.tasks[id - 1].end_s);
  });
  std::vector<double> samples;
  for (const auto& rank : gaps) samples.insert(samples.end(), rank.begin(), rank.end());
  return upper_median(std::move(samples));
}

/// Seconds per task of empty kernels.
struct KernelTask {
  double issued_s = 0, replayed_s = 0;
};

KernelTask measure_kernel_task(const Measured& what) {
  const auto structure = std::make_shared<const Structure>(chunk_pipeline(40));
  const auto tasks = static_cast<double>(structure->tasks.size());
  const auto device = make_device(what.kind);
  EmptyKernels empty;
  Executor executor(*device, structure);
  executor.record(empty);
  executor.replay(empty);
  std::vector<double> issued, replayed;
  for (int run = 0; run < what.runs; ++run) {
    issued.push_back(executor.run(empty).pass.end_s / tasks);
    replayed.push_back(executor.replay(empty).pass.end_s / tasks);
  }
  return {upper_median(std::move(issued)), upper_median(std::move(replayed))};
}

}  // namespace

Overhead measure_overhead(int ranks, int runs, DeviceKind kind) {
  require<BadInput>(ranks >= 1 && runs >= 1, "overhead of {} ranks in {} runs, expected at least 1", ranks, runs);
  const Measured what{ranks, runs, kind};
  Overhead overhead{.task_s = measure_task_s(what), .crossing_s = measure_crossing_s(what)};
  if (kind == DeviceKind::cuda && ranks == 1) {
    const KernelTask task = measure_kernel_task(what);
    overhead.kernel_task_s = task.issued_s;
    overhead.replayed_task_s = task.replayed_s;
  }
  return overhead;
}

}  // namespace moe
