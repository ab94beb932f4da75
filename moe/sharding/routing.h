#pragma once
// A routing is a gate's decision for one rank's tokens: which experts, with what weight, and in which row.
#include <cstdint>
#include <vector>

#include "moe/tensor/tensor.h"

namespace moe {

struct RoutingShape {
  int64_t tokens = 0;        // tokens that this rank gates: whole groups
  int64_t group_tokens = 0;  // B L / N_MP; capacity is per group, so the routing is the same on every gating rank
  int64_t choices = 0;       // pairs per token: top_k, E (Expert Choice) or E x rows (SoftMoE)
  int64_t experts = 0;
  int64_t rows = 0;     // rows per group and expert: the capacity, or in a dropless layer all tokens of the group
  int64_t padding = 0;  // empty rows after `rows`; a layout may hold both
  int64_t pairs() const { return tokens * choices; }
  int64_t groups() const { return tokens / group_tokens; }
};

/// A routing's pairs: p = token * choices + choice, choices from the most to the least preferred. A pair brings
/// its token into a row of an expert and that row's output back: row += fill * token, output += weight * row.
struct Routing : RoutingShape {
  static constexpr int32_t kDropped = -1;

  std::vector<int32_t> expert;  // expert of each pair
  std::vector<int32_t> row;     // row of each pair in its group, in [0, rows); kDropped if the pair has no row
  std::vector<int64_t> filled;  // [group][expert]: rows [0, filled) hold a token, the others are empty
  Tensor weight;                // (tokens, choices); float32 in a 16-bit layer
  Tensor fill;                  // (tokens, choices), for gates that mix tokens (SoftMoE); without data, every fill is 1
  bool preset = false;          // whether `expert` comes from a workload, so that gates only compute the weights

  Routing() = default;
  Routing(const RoutingShape& shape, DType weights, MemorySpace& memory = cpu_memory());
  /// The results of a gate on a GPU, which the order reads; the vectors above are in host memory. send() copies a
  /// preset routing's experts to the device, fetch() copies the gate's choice back, and fetch_filled() only `filled`.
  /// All three block, and do nothing on a CPU.
  struct OnDevice {
    Array<int32_t> expert, row;  // by pair, as in Routing
    Array<int32_t> slot_of;      // slot of each pair: (group experts + expert) (rows + padding) + row, or kDropped
    Array<int32_t> pair_of;      // pair of each slot; -1 if the slot is empty
    Array<int64_t> filled;
  } device;
  void send() const;
  void fetch();
  void fetch_filled();
  /// Returns `filled` in the memory in which the gate writes it: the GPU's or, for a gate on the CPU, the host's.
  const int64_t* filled_data() const { return device.filled.size() > 0 ? device.filled.data() : filled.data(); }
  /// Returns the number of slots of an expert of a group.
  int64_t slots() const { return rows + padding; }
  int64_t group_of(int64_t token) const { return token / group_tokens; }
  bool mixes() const { return fill.view().data() != nullptr; }
};

/// Gives every pair its row from `expert`, group by group: all first choices in token order, then all second choices,
/// ...; pairs whose expert is full are dropped (GShard, section 2.2).
void assign_rows(Routing& routing);

}  // namespace moe
