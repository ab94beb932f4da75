#include "moe/plan/lifetimes.h"

#include <algorithm>

#include "moe/plan/pipeline.h"
#include "moe/plan/plan_checks.h"

namespace moe {
namespace {

// Says whether the task adds up over MP what attention made: in a backward it is the last, and reads nothing else.
bool sums_attention(TaskKind kind) { return kind == TaskKind::mp_reducescatter || kind == TaskKind::mp_allreduce; }

bool of_attention(TaskKind kind) {
  return kind == TaskKind::attention || kind == TaskKind::mp_allgather || sums_attention(kind);
}

bool of_rows(TaskKind kind) { return is_chunked(kind) || is_shared(kind) || kind == TaskKind::i_order; }

// Holds the tasks that touch what one pass holds: of each lane the first and the last.
class Holding {
 public:
  void add(const Task& task) {
    const auto lane = std::ranges::find(lanes_, task.lane, &OfLane::lane);
    if (lane == lanes_.end())
      lanes_.push_back({task.lane, task.id, task.id});
    else
      lane->last = task.id;
    if (first_ < 0) first_ = task.id;
    last_ = task.id;
  }
  bool empty() const { return first_ < 0; }
  int first() const { return first_; }
  bool ends_before(const Holding& other, const Ancestors& ancestors) const {
    return last_ < other.first_ && std::ranges::all_of(lanes_, [&](const OfLane& own) {
             return std::ranges::all_of(other.lanes_,
                                        [&](const OfLane& next) { return ancestors.before(own.last, next.first); });
           });
  }

 private:
  struct OfLane {
    int lane, first, last;
  };
  std::vector<OfLane> lanes_;
  int first_ = -1, last_ = -1;
};

using Holdings = std::vector<std::array<Holding, kLifetimes>>;

Holdings holdings_of(const Plan& plan) {
  const auto micro_batches = static_cast<size_t>(plan.micro_batches);
  Holdings all(static_cast<size_t>(plan.layers) * micro_batches);
  for (const Task& task : plan.tasks()) {
    if (!is_of_layer(task.kind)) continue;
    const bool forward = task.phase == Phase::forward;
    const size_t pass = static_cast<size_t>(task.layer) * micro_batches + static_cast<size_t>(task.micro_batch);
    const auto add = [&](size_t to, Lifetime lifetime) { all[to][static_cast<size_t>(lifetime)].add(task); };
    if (forward || !sums_attention(task.kind)) add(pass, Lifetime::kept);
    if (!of_rows(task.kind)) add(pass, forward ? Lifetime::dense_forward : Lifetime::dense_backward);
    if (!of_attention(task.kind)) add(pass, forward ? Lifetime::moe_forward : Lifetime::moe_backward);
    if (forward) continue;
    if (!of_attention(task.kind))
      add(pass, Lifetime::output_gradient);
    else if (task.layer > 0)
      add(pass - micro_batches, Lifetime::output_gradient);
  }
  return all;
}

struct Held {
  const Holding* by = nullptr;
  MemorySlot slot;
  int* number = nullptr;  // in MemorySlots::held
};

Lifetime of_both_phases(Lifetime lifetime) {
  if (lifetime == Lifetime::dense_backward) return Lifetime::dense_forward;
  return lifetime == Lifetime::moe_backward ? Lifetime::moe_forward : lifetime;
}

}  // namespace

MemorySlots memory_slots(const Plan& plan) {
  MemorySlots result{plan.micro_batches, {}, {}};
  const Holdings holdings = holdings_of(plan);
  std::array<int, kLifetimes> nothing;
  nothing.fill(-1);
  result.held.assign(holdings.size(), nothing);
  std::vector<Held> all;
  for (int stage = 0; stage < plan.shape.parallel.pp; ++stage) {
    const auto [first, last] = layers_of_stage(plan.layers, plan.shape.parallel.pp, stage);
    for (int layer = first; layer < last; ++layer)
      for (size_t i = 0; i < static_cast<size_t>(plan.micro_batches); ++i)
        for (size_t l = 0; l < kLifetimes; ++l) {
          const auto lifetime = static_cast<Lifetime>(l);
          const size_t pass = static_cast<size_t>(layer) * static_cast<size_t>(plan.micro_batches) + i;
          if (holdings[pass][l].empty() || (lifetime == Lifetime::output_gradient && layer + 1 == last)) continue;
          const bool dense = lifetime == Lifetime::kept && plan.dense.has(layer);
          all.push_back({&holdings[pass][l], {of_both_phases(lifetime), stage, dense}, &result.held[pass][l]});
        }
  }
  std::ranges::stable_sort(all, {}, [](const Held& held) { return held.by->first(); });
  const Ancestors ancestors(plan);
  std::vector<const Holding*> holders;  // by slot: the last one
  for (const Held& held : all) {
    size_t slot = 0;
    while (slot < holders.size() &&
           !(result.slots[slot] == held.slot && holders[slot]->ends_before(*held.by, ancestors)))
      ++slot;
    if (slot == holders.size()) {
      result.slots.push_back(held.slot);
      holders.push_back(nullptr);
    }
    holders[slot] = held.by;
    *held.number = static_cast<int>(slot);
  }
  return result;
}

}  // namespace moe
