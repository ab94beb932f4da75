#pragma once
// Runs ops on all ranks, one after the other or two at once. Where ranks are processes, rank 0's leads: the
// others follow its commands, so that what it decides by the clock is the same everywhere.
#include <memory>
#include <optional>
#include <vector>

#include "moe/comm/local/local_world.h"
#include "moe/measure/bench_ranks.h"
#include "moe/measure/ops/rank_ops.h"

namespace moe::measure {

/// Holds one op's times and faults, over all ranks.
struct OpSample {
  std::vector<double> seconds;  // by rank, of one iteration, divided by the dilation
  int64_t overruns = 0;
  WrongElements wrong;  // where it was checked
};

class OpRunner {
 public:
  /// Makes a runner, blocking; every process makes one, with the same cases.
  OpRunner(const BenchRanks& ranks, const std::vector<OpCase>& cases, double timeout_s);
  ~OpRunner();

  /// Runs an op, only where the ranks lead. Indices are of the constructor's cases. `check`: the op is run once,
  /// unpaced, and its result is looked at.
  OpSample run(size_t op, int iterations, bool check = false);
  /// Runs the op while `by` runs beside it on another stream, from the same moment on.
  OpSample run_beside(size_t op, int iterations, size_t by, int by_iterations);
  /// Runs both from the same moment on, until the later one ends, and returns the seconds of that, whatever the
  /// iterations.
  OpSample run_both(size_t op, int iterations, size_t other, int other_iterations);

  /// Obeys, where the ranks don't lead, until the leader's runner is released. Throws what fails.
  void follow();
  /// Ends the others' follow(); the leader's last call.
  void release();

 private:
  struct Command;
  World& world() { return ranks_.processes ? *ranks_.processes : *threads_; }
  OpSample order(const Command& command);
  void tell(const Command& command);
  OpSample perform(const Command& command);
  void perform_on(int rank, const Command& command, std::vector<double>& times, std::string& wrong);
  size_t place(int rank) const { return static_cast<size_t>(rank - here_.front()); }

  const BenchRanks ranks_;
  const std::vector<OpCase>& cases_;
  std::optional<LocalWorld> threads_;
  std::vector<int> here_;
  std::vector<std::unique_ptr<RankOps>> ops_, beside_;  // of the ranks here
};

}  // namespace moe::measure
