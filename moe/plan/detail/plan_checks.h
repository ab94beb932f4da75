#pragma once
// What the parts of check_plan share: check_plan itself is declared in plan.h.
#include <cstdint>
#include <string>
#include <vector>

#include "moe/base/check.h"
#include "moe/plan/plan.h"

namespace moe {

using Edges = std::vector<std::vector<int>>;  // predecessors by task

template <class... Args>
[[noreturn]] void broken(const Task& task, fmt::format_string<Args...> text, Args&&... args) {
  throw WrongResult(fmt::format("plan: {}: {}", task.name(), fmt::format(text, std::forward<Args>(args)...)));
}

// What is ordered before a task: how many tasks at the head of each lane's queue. A lane runs its queue in order,
// so that whatever is ordered after one of its tasks is ordered after all of those before it. Takes tasks x lanes
// numbers.
class Ancestors {
 public:
  /// Orders by dependencies and lanes; a task has a larger id than those before it.
  explicit Ancestors(const Plan& plan);
  bool before(int first, int second) const {
    return known_[static_cast<size_t>(second) * lanes_ + lane_[first]] > place_[first];
  }

 private:
  size_t lanes_;
  std::vector<uint32_t> lane_, place_;  // by task; place in its lane's queue
  std::vector<uint32_t> known_;         // by task and lane
};

// Each check throws WrongResult naming the task that breaks its rule; ids, lanes and order were checked before.
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

}  // namespace moe
