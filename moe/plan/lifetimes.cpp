#include "moe/plan/lifetimes.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "moe/plan/pipeline.h"
#include "moe/plan/plan_checks.h"

namespace moe {
namespace {

// Says whether the task adds up over MP what attention made: in a backward it is the last, and reads nothing else.
bool sums_attention(TaskKind kind) { return kind == TaskKind::mp_reducescatter || kind == TaskKind::mp_allreduce; }

bool of_attention(TaskKind kind) {
  return is_attention(kind) || kind == TaskKind::mp_allgather || sums_attention(kind);
}

bool of_rows(TaskKind kind) { return is_chunked(kind) || is_shared(kind) || kind == TaskKind::i_order; }

// A forward's AllGather of its input, and a backward's before a dense layer's feed-forward, touch what passes between
// layers, or is kept, alone.
bool of_dense_part(const Task& task) {
  if (of_rows(task.kind)) return false;
  if (task.phase == Phase::forward) return task.kind != TaskKind::mp_allgather;
  return !sums_attention(task.kind) && task.kind != TaskKind::ffn_allgather;
}

// Holds tasks between whose first and last one memory is needed: of each lane the first and the last.
class Span {
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
  bool ends_before(const Span& other, const Ancestors& ancestors) const {
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

// Holds when a pass needs memory: once; of a layer whose forward runs again, twice.
using Holding = std::array<Span, 2>;
using Holdings = std::vector<std::array<Holding, kLifetimes>>;

Holdings holdings_of(const Plan& plan) {
  const auto micro_batches = static_cast<size_t>(plan.micro_batches);
  Holdings all(static_cast<size_t>(plan.layers) * micro_batches);
  const bool again = std::ranges::any_of(plan.tasks(), &Task::again);
  for (const Task& task : plan.tasks()) {
    if (!is_of_layer(task.kind)) continue;
    const bool forward = task.phase == Phase::forward;
    const size_t pass = static_cast<size_t>(task.layer) * micro_batches + static_cast<size_t>(task.micro_batch);
    const size_t time = again && task.runs_in() == Phase::backward ? 1 : 0;
    const auto add = [&](size_t to, Lifetime lifetime, size_t when = 0) {
      all[to][static_cast<size_t>(lifetime)][when].add(task);
    };
    if (forward || !sums_attention(task.kind)) {
      add(pass, Lifetime::kept, time);
      add(pass, Lifetime::output);
    }
    if (of_dense_part(task)) forward ? add(pass, Lifetime::dense_forward, time) : add(pass, Lifetime::dense_backward);
    if (!of_attention(task.kind)) forward ? add(pass, Lifetime::moe_forward, time) : add(pass, Lifetime::moe_backward);
    if (forward) continue;
    const bool makes_input = of_attention(task.kind) && task.kind != TaskKind::attention_dw;
    if (makes_input && task.kind != TaskKind::mp_allgather) add(pass, Lifetime::input_sum);
    if (!of_attention(task.kind))
      add(pass, Lifetime::output_gradient);
    else if (makes_input && task.layer > 0)
      add(pass - micro_batches, Lifetime::output_gradient);
  }
  return all;
}

Lifetime of_both_phases(Lifetime lifetime) {
  if (lifetime == Lifetime::dense_backward) return Lifetime::dense_forward;
  return lifetime == Lifetime::moe_backward ? Lifetime::moe_forward : lifetime;
}

// Gives out the slots of one kind.
class Slots {
 public:
  /// Returns the slot that `next` holds: the first that is free whenever `next` needs it, else `fresh`.
  int take(const Holding& next, const Ancestors& ancestors, int fresh) {
    auto slot = std::ranges::find_if(slots_, [&](const Slot& held) {
      return std::ranges::all_of(next, [&](const Span& span) { return span.empty() || held.fits(span, ancestors); });
    });
    if (slot == slots_.end()) slot = slots_.insert(slot, Slot{fresh});
    for (const Span& span : next)
      if (!span.empty()) slot->add(span);
    return slot->id;
  }

 private:
  struct Slot {
    int id;
    int first = -1, last = -1;            // of the last span
    std::vector<const Span*> spans = {};  // each ends before the next begins
    std::vector<const Span*>::const_iterator behind(const Span& span) const {
      return std::ranges::upper_bound(spans, span.first(), {}, &Span::first);
    }
    bool fits(const Span& span, const Ancestors& ancestors) const {
      if (first < span.first() && last >= span.first()) return false;  // mostly so, where many passes are kept
      const auto next = behind(span);
      return (next == spans.begin() || (*std::prev(next))->ends_before(span, ancestors)) &&
             (next == spans.end() || span.ends_before(**next, ancestors));
    }
    void add(const Span& span) {
      spans.insert(behind(span), &span);
      first = spans.back()->first();
      last = spans.back()->last();
    }
  };
  std::vector<Slot> slots_;
};

// Is memory of a pass that looks for a slot.
struct Wanted {
  const Holding* by;
  MemorySlot kind;
  int* slot;
};

std::vector<Wanted> wanted_slots(const Plan& plan, const Holdings& holdings, MemorySlots& slots) {
  std::vector<Wanted> all;
  const int micro_batches = plan.micro_batches;
  for (int chunk = 0; chunk < plan.split().chunks(); ++chunk) {
    const int stage = chunk % plan.split().stages;
    const auto [first, last] = layers_of_chunk(plan.split(), chunk);
    for (int pass = first * micro_batches; pass < last * micro_batches; ++pass)
      for (size_t l = 0; l < kLifetimes; ++l) {
        const auto lifetime = static_cast<Lifetime>(l);
        const Holding& holding = holdings[static_cast<size_t>(pass)][l];
        const int layer = pass / micro_batches;
        const bool passed_on = lifetime == Lifetime::output || lifetime == Lifetime::output_gradient;
        if (holding.front().empty() || (passed_on && layer + 1 == last)) continue;
        const bool by_kind = lifetime == Lifetime::kept || lifetime == Lifetime::output;
        const bool dense = by_kind && plan.dense.has(layer);
        all.push_back({&holding, {of_both_phases(lifetime), stage, dense}, &slots.held[static_cast<size_t>(pass)][l]});
      }
  }
  std::ranges::stable_sort(all, {}, [](const Wanted& wanted) { return wanted.by->front().first(); });
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
