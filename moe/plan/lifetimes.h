#pragma once
// Says how long what a layer's pass over a micro-batch makes is needed, and which passes can hold it in the same
// memory.
//
// Idea: two passes share memory where every task that touches it in the one is ordered before every task that touches
// it in the other. What orders them are dependencies and lanes (Ancestors), so that no timing can break it; that one is
// issued first is not enough.
#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

/// Names how long something is needed. The dense part is all but the tasks of rows, of the shared expert and i_order;
/// the MoE part is all but attention and its collectives: gate, order and a dense layer's feed-forward are in both. A
/// backward's sum over MP, behind its attention, is in neither, and reads nothing that is kept. A forward's AllGather
/// of its input is not in the dense part.
/// A layer that runs its forward again for its backward needs what is kept, and what its forward's parts need, twice:
/// in the first forward, and from the second one on.
enum class Lifetime : uint8_t {
  kept,            // from a forward to the end of its backward
  output,          // likewise, whatever runs again: what the next layer reads
  dense_forward,   // by a forward's dense part
  dense_backward,  // by a backward's
  moe_forward,     // by a forward's MoE part
  moe_backward,    // by a backward's
  input_sum,       // by attention's backward, until the MP ranks' parts are added up
  output_gradient  // from the backward of the layer behind until this layer's attention
};
inline constexpr int kLifetimes = 8;

/// Is memory that passes hold one after the other. Both phases' dense parts may hold the same slot, and both MoE parts;
/// layers that differ in kind don't keep in the same.
struct MemorySlot {
  Lifetime lifetime = Lifetime::kept;  // of both phases' parts: the forward's
  int stage = 0;
  bool dense_layers = false;  // of Lifetime::kept and output
  auto operator<=>(const MemorySlot&) const = default;
};

struct MemorySlots {
  int micro_batches = 0;
  std::vector<MemorySlot> slots;
  std::vector<std::array<int, kLifetimes>> held;  // by layer, then micro-batch, and Lifetime; -1: nothing is shared

  /// Says that every pass has all of its memory for itself.
  bool none() const { return slots.empty(); }
  const std::array<int, kLifetimes>& of(int layer, int micro_batch) const {
    return held[static_cast<size_t>(layer) * static_cast<size_t>(micro_batches) + static_cast<size_t>(micro_batch)];
  }
  bool operator==(const MemorySlots& other) const { return held == other.held; }
};

/// Gives each pass, in the order in which they begin, a slot of each lifetime that is free whenever it needs it. What
/// leaves a chunk of a stage's layers has none, nor has its gradient: they belong to that chunk's end alone.
MemorySlots memory_slots(const Plan& plan);

}  // namespace moe
