#pragma once
// Tasks that run alone, and begin on all ranks together: what each takes where nothing runs beside it but the other
// ranks' share of the same.
#include <string>

#include "moe/comm/world.h"
#include "moe/exec/executor.h"
#include "moe/measure/layers/pass_times.h"

namespace moe {

/// Returns the plan with every task of a stage waiting for the one issued before it there. Its lanes stay.
Plan serial_plan(const Plan& plan);

/// Lets no rank go on to the next task before all have ended this one. Ranks have plans with equally many tasks.
class InStep final : public Binding {
 public:
  InStep(Binding& tasks, Communicator& everyone) : tasks_(tasks), everyone_(everyone) {}
  void issue(const Task& task, Stream& stream, Pace pace) override { tasks_.issue(task, stream, std::move(pace)); }
  void settle(const Task& task, Stream& stream) override;

 private:
  Binding& tasks_;
  Communicator& everyone_;
};

/// Where a rank runs: ranks of one machine read one clock and share its cores.
struct Machine {
  std::string name;
  int cores = 1;
};
/// Returns each rank's.
std::vector<Machine> machines_of(World& world);

/// What a task took where ranks are in step, on the machine where it took most. A collective: from the last rank's
/// start to the last one's end. A computation: the time in which ranks ran it, of those that ran at once at most as
/// many as there are cores, over as many ranks as can run at once: so what threads wait for to be woken does not count,
/// and what ranks that share cores wait for each other does. `begin_s`: by rank, when the pass began.
double in_step_seconds(const Task& task, const RankTimes& ranks, const std::vector<double>& begin_s,
                       const std::vector<Machine>& machines);

}  // namespace moe
