#include "moe/measure/layers/in_step.h"

#include <algorithm>

namespace moe::measure {

Plan serial_plan(const Plan& plan) {
  auto structure = std::make_shared<Structure>(*plan.structure);
  for (Task& task : structure->tasks)
    if (task.id > 0 && std::ranges::find(task.after, task.id - 1) == task.after.end())
      task.after.push_back(task.id - 1);
  Plan serial = plan;
  serial.structure = std::move(structure);
  return serial;
}

void InStep::settle(const Task& task, Stream& stream) {
  tasks_.settle(task, stream);
  everyone_.barrier({stream, {}, "end of a task"});
  stream.synchronize();
}

}  // namespace moe::measure
