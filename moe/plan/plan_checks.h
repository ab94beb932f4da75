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

// Transitive closure as bit rows: row i holds every task ordered before i.
class Ancestors {
 public:
  explicit Ancestors(const Edges& edges) : words_((edges.size() + 63) / 64), bits_(edges.size() * words_) {
    for (size_t i = 0; i < edges.size(); ++i)  // predecessors have smaller ids: checked before
      for (const int p : edges[i]) {
        const size_t from = static_cast<size_t>(p);
        for (size_t w = 0; w < words_; ++w) bits_[i * words_ + w] |= bits_[from * words_ + w];
        bits_[i * words_ + from / 64] |= uint64_t{1} << (from % 64);
      }
  }
  bool before(int first, int second) const {
    const size_t f = static_cast<size_t>(first);
    return bits_[static_cast<size_t>(second) * words_ + f / 64] >> (f % 64) & 1;
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
};

// Each throws WrongResult naming the task that breaks its rule; ids, lanes and order were checked before.
void check_gradients(const Plan& plan, const Ancestors& ancestors);
void check_rows(const Plan& plan);
void check_accesses(const Plan& plan, const Ancestors& ancestors);

}  // namespace moe
