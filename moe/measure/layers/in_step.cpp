#include "moe/measure/layers/in_step.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <thread>

#include "moe/measure/layers/overlap.h"

namespace moe {

Plan serial_plan(const Plan& plan) {
  auto structure = std::make_shared<Structure>(*plan.structure);
  std::map<int, int> last;  // by stage
  for (Task& task : structure->tasks) {
    const int stage = structure->lanes[static_cast<size_t>(task.lane)].stage;
    const auto before = last.find(stage);
    if (before != last.end() && std::ranges::find(task.after, before->second) == task.after.end())
      task.after.push_back(before->second);
    last[stage] = task.id;
  }
  Plan serial = plan;
  serial.structure = std::move(structure);
  return serial;
}

void InStep::settle(const Task& task, Stream& stream) {
  tasks_.settle(task, stream);
  everyone_.barrier({stream, {}, "end of a task"});
  stream.synchronize();
}

std::vector<Machine> machines_of(World& world) {
  std::string boot;  // a kernel's: containers on one machine read one clock
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  const size_t here = world.here().size();
  const std::vector<std::string> names = gather(world, std::vector<std::string>(here, boot));
  const auto cores =
      gather(world, std::vector<std::vector<double>>(here, {double(std::thread::hardware_concurrency())}));
  std::vector<Machine> machines;
  for (size_t rank = 0; rank < names.size(); ++rank)
    machines.push_back({names[rank], std::max(1, static_cast<int>(cores[rank].front()))});
  return machines;
}

namespace {

double from_last_start(const std::vector<TaskTime>& ranks) {
  double start = 0, end = 0;
  for (const TaskTime& t : ranks) start = std::max(start, t.start_s), end = std::max(end, t.end_s);
  return end - start;
}

double computing_seconds(const std::vector<TaskTime>& ranks, int cores) {
  std::vector<std::pair<double, int>> edges;
  for (const TaskTime& t : ranks) edges.insert(edges.end(), {{t.start_s, 1}, {t.end_s, -1}});
  std::ranges::sort(edges);
  double core_seconds = 0, last = 0;
  int running = 0;
  for (const auto& [at, change] : edges) {
    core_seconds += std::min(running, cores) * (at - last);
    running += change;
    last = at;
  }
  return core_seconds / std::min(cores, static_cast<int>(ranks.size()));
}

}  // namespace

double in_step_seconds(const Task& task, const RankTimes& ranks, const std::vector<double>& begin_s,
                       const std::vector<Machine>& machines) {
  std::map<std::string_view, std::vector<TaskTime>> by_machine;
  std::map<std::string_view, int> cores;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const TaskTime& t = ranks[rank][static_cast<size_t>(task.id)];
    if (!has_time(t)) continue;
    by_machine[machines[rank].name].push_back({begin_s[rank] + t.start_s, begin_s[rank] + t.end_s});
    cores[machines[rank].name] = machines[rank].cores;
  }
  double most = 0;
  for (const auto& [machine, times] : by_machine)
    most = std::max(most,
                    task.group == GroupKind::none ? computing_seconds(times, cores[machine]) : from_last_start(times));
  return most;
}

}  // namespace moe
