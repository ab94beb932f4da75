#include "moe/plan/lifetimes.h"

#include <algorithm>
#include <map>
#include <queue>

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
  int last() const { return last_; }
  bool ends_before(const Holding& other, const Ancestors& ancestors) const {
    return std::ranges::all_of(lanes_, [&](const OfLane& own) {
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
    if (!of_rows(task.kind) && (forward || !sums_attention(task.kind)))
      add(pass, forward ? Lifetime::dense_forward : Lifetime::dense_backward);
    if (!of_attention(task.kind)) add(pass, forward ? Lifetime::moe_forward : Lifetime::moe_backward);
    if (forward) continue;
    if (task.kind == TaskKind::attention || sums_attention(task.kind)) add(pass, Lifetime::input_sum);
    if (!of_attention(task.kind))
      add(pass, Lifetime::output_gradient);
    else if (task.layer > 0)
      add(pass - micro_batches, Lifetime::output_gradient);
  }
  return all;
}

Lifetime of_both_phases(Lifetime lifetime) {
  if (lifetime == Lifetime::dense_backward) return Lifetime::dense_forward;
  return lifetime == Lifetime::moe_backward ? Lifetime::moe_forward : lifetime;
}

// Gives out the slots of one kind. A slot may be free for a pass once its holder's last task is issued before the
// pass's first one.
class Slots {
 public:
  /// Returns the slot that `next` holds from now on: one that is free, else `fresh`.
  int take(const Holding& next, const Ancestors& ancestors, int fresh) {
    for (; !busy_.empty() && busy_.top().last < next.first(); busy_.pop()) ended_.push_back(busy_.top());
    const auto free =
        std::ranges::find_if(ended_, [&](const Held& held) { return held.by->ends_before(next, ancestors); });
    int slot = fresh;
    if (free != ended_.end()) {
      slot = free->slot;
      ended_.erase(free);
    }
    busy_.push({next.last(), slot, &next});
    return slot;
  }

 private:
  struct Held {
    int last, slot;
    const Holding* by;
    bool operator<(const Held& other) const { return last > other.last; }  // the first to end is on top
  };
  std::priority_queue<Held> busy_;
  std::vector<Held> ended_;
};

// Is memory of a pass that looks for a slot.
struct Wanted {
  const Holding* by;
  MemorySlot kind;
  int* slot;
};

std::vector<Wanted> wanted_slots(const Plan& plan, const Holdings& holdings, MemorySlots& slots) {
  std::vector<Wanted> all;
  const int stages = std::min(plan.shape.parallel.pp, plan.layers), micro_batches = plan.micro_batches;
  for (int stage = 0; stage < stages; ++stage) {
    const auto [first, last] = layers_of_stage(plan.layers, stages, stage);
    for (int pass = first * micro_batches; pass < last * micro_batches; ++pass)
      for (size_t l = 0; l < kLifetimes; ++l) {
        const auto lifetime = static_cast<Lifetime>(l);
        const Holding& holding = holdings[static_cast<size_t>(pass)][l];
        const int layer = pass / micro_batches;
        if (holding.empty() || (lifetime == Lifetime::output_gradient && layer + 1 == last)) continue;
        const bool dense = lifetime == Lifetime::kept && plan.dense.has(layer);
        all.push_back({&holding, {of_both_phases(lifetime), stage, dense}, &slots.held[static_cast<size_t>(pass)][l]});
      }
  }
  std::ranges::stable_sort(all, {}, [](const Wanted& wanted) { return wanted.by->first(); });
  return all;
}

}  // namespace

MemorySlots memory_slots(const Plan& plan) {
  MemorySlots result{plan.micro_batches, {}, {}};
  const Holdings holdings = holdings_of(plan);
  std::array<int, kLifetimes> nothing;
  nothing.fill(-1);
  result.held.assign(holdings.size(), nothing);
  const Ancestors ancestors(plan);
  std::map<MemorySlot, Slots> kinds;
  for (const Wanted& wanted : wanted_slots(plan, holdings, result)) {
    const int fresh = static_cast<int>(result.slots.size());
    *wanted.slot = kinds[wanted.kind].take(*wanted.by, ancestors, fresh);
    if (*wanted.slot == fresh) result.slots.push_back(wanted.kind);
  }
  return result;
}

}  // namespace moe
