#pragma once
// A routing is a gate's decision for one rank's tokens: which experts, with what weight, and in which row.
#include <cstdint>
#include <vector>

#include "moe/tensor/tensor.h"

namespace moe {

struct RoutingShape {
  int64_t tokens = 0;        // tokens that this rank gates: whole groups
  int64_t group_tokens = 0;  // B L / N_MP: capacity counts by group, so that no routing depends on the gating rank
  int64_t choices = 0;       // pairs a token may have: top_k, E (Expert Choice) or E rows (SoftMoE)
  int64_t experts = 0;
  int64_t rows = 0;     // rows per group and expert: the capacity, or all tokens of the group if none is dropped
  int64_t padding = 0;  // empty rows after these; a layout may hold both
  int64_t pairs() const { return tokens * choices; }
  int64_t groups() const { return tokens / group_tokens; }
};

/// A routing's pairs: p = token * choices + choice, choices from the most to the least preferred. A pair brings
/// its token into a row of an expert and that row's output back: row += fill * token, output += weight * row.
struct Routing : RoutingShape {
  static constexpr int32_t kDropped = -1;

  std::vector<int32_t> expert;  // expert of each pair
  std::vector<int32_t> row;     // row of each pair in its group: in [0, rows), or kDropped: its weight is lost
  std::vector<int64_t> filled;  // [group][expert]: rows [0, filled) hold a token, the others are empty
  Tensor weight;                // (tokens, choices), float32 of a 16-bit layer
  Tensor fill;                  // likewise, for gates that mix tokens (SoftMoE); no data: 1
  bool preset = false;          // `expert` is given (a recorded or drawn workload): gates only compute the weights

  Routing() = default;
  Routing(const RoutingShape& shape, DType weights, MemorySpace& memory = cpu_memory());
  /// The results of a device's gate, which its order reads. The vectors above are the host's. send() copies a preset
  /// routing's experts to the device, fetch() copies the gate's choice back, and fetch_filled() only its `filled`. All
  /// three block, and do nothing on a CPU.
  struct OnDevice {
    Array<int32_t> expert, row;  // for each pair, as above
    Array<int32_t> slot_of;      // slot of each pair: (group experts + expert) (rows + padding) + row, or kDropped
    Array<int32_t> pair_of;      // pair of each such slot; -1: empty
    Array<int64_t> filled;
  } device;
  void send() const;
  void fetch();
  void fetch_filled();
  /// Returns `filled` in the memory where it is filled: the device's, else the host's.
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
