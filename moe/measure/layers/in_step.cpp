#include "moe/measure/layers/in_step.h"

#include <algorithm>
#include <map>

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

}  // namespace moe
