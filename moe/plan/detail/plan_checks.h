#pragma once
// Declarations that the sources of check_plan share; check_plan itself is declared in plan.h.
#include <cstdint>
#include <string>
#include <vector>

#include "moe/base/check.h"
#include "moe/plan/plan.h"

namespace moe {

using Edges = std::vector<std::vector<int>>;  // for each task, the ids of its predecessors

template <class... Args>
[[noreturn]] void broken(const Task& task, fmt::format_string<Args...> text, Args&&... args) {
  throw WrongResult(fmt::format("plan: {}: {}", task.name(), fmt::format(text, std::forward<Args>(args)...)));
}

// For each task, the tasks that are ordered before it. A lane runs its queue in order, so a task that is ordered after
// one of a lane's tasks is ordered after all earlier tasks of that lane. One number per task and lane is therefore
// enough: how many tasks from the front of the lane's queue are ordered before the task.
class Ancestors {
 public:
  /// Orders tasks by dependencies and lanes; every task must have a larger id than the tasks before it.
  explicit Ancestors(const Plan& plan);
  bool before(int first, int second) const {
    return known_[static_cast<size_t>(second) * lanes_ + lane_[first]] > place_[first];
  }

 private:
  size_t lanes_;
  std::vector<uint32_t> lane_, place_;  // for each task: its lane, and its position in the lane's queue
  std::vector<uint32_t> known_;         // for each task and lane: the number of the lane's tasks before it
};

// Each check throws WrongResult naming the task that breaks its rule. They require that the plan's ids, lanes and order
// have been checked already.
void check_gradients(const Plan& plan, const Ancestors& ancestors);
void check_step(const Plan& plan, const Ancestors& ancestors);
void check_rows(const Plan& plan);
void check_shared(const Plan& plan);
void check_dense(const Plan& plan);
void check_attention(const Plan& plan);
void check_again(const Plan& plan, const Ancestors& ancestors);
void check_parts(const Plan& plan, const Ancestors& ancestors);
void check_ends(const Plan& plan);
void check_transfers(const Plan& plan);
void check_accesses(const Plan& plan, const Ancestors& ancestors);
void check_offload(const Plan& plan, const Ancestors& ancestors);

}  // namespace moe
