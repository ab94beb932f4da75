#pragma once
// Makes tasks slower on purpose, to see whether what guards performance notices.
#include <limits>
#include <string>
#include <vector>

#include "moe/exec/executor.h"

namespace moe::measure {

/// Makes tasks of a kind take `factor` times as long as their work does.
struct Drag {
  TaskKind kind{};
  double factor = 1;
  int rank = kEveryRank;
  static constexpr int kEveryRank = -1;
  bool slows(int of_rank) const { return factor > 1 && (rank == kEveryRank || rank == of_rank); }
};

/// Reads "KIND:FACTOR" or "KIND:FACTOR:RANK", "expert:1.1" (both halves too); empty: nothing is slowed. Throws
/// BadInput that begins with `what`.
Drag drag_from(const std::string& text, const std::string& what);

/// Issues what another binding does; behind the work of a slowed task its stream spins. GPUs can't be slowed so: their
/// streams are no threads.
class Dragged final : public Binding {
 public:
  Dragged(Binding& tasks, const Drag& drag) : tasks_(tasks), drag_(drag) {}
  void issue(const Task& task, Stream& stream, Pace pace) override;
  void settle(const Task& task, Stream& stream) override { tasks_.settle(task, stream); }
  bool can_issue_ahead() const override { return tasks_.can_issue_ahead(); }

 private:
  Binding& tasks_;
  Drag drag_;
};

}  // namespace moe::measure
