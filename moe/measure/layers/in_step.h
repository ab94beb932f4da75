#pragma once
// Runs tasks alone, and begins each on all ranks together: what each takes where nothing runs beside it but the other
// ranks' share of the same.
#include "moe/comm/communicator.h"
#include "moe/exec/executor.h"

namespace moe::measure {

/// Returns the plan, of one stage, with every task waiting for the one issued before it. Its lanes stay.
Plan serial_plan(const Plan& plan);

/// Lets no rank go on to the next task before all have ended this one. The ranks' plans have equally many tasks.
class InStep final : public Binding {
 public:
  InStep(Binding& tasks, Communicator& everyone) : tasks_(tasks), everyone_(everyone) {}
  void issue(const Task& task, Stream& stream, Pace pace) override { tasks_.issue(task, stream, pace); }
  void settle(const Task& task, Stream& stream) override;

 private:
  Binding& tasks_;
  Communicator& everyone_;
};

}  // namespace moe::measure
