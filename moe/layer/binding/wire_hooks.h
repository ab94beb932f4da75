#pragma once
// Calls a layer's hook (hooks/hook.h) around the MoE part and around each exchange, and has it convert an exchange's
// rows to the wire's type and back. A layer without a hook sends its rows as they are.
#include <cstddef>
#include <vector>

#include "moe/layer/layer_state.h"

namespace moe::layer {

/// Holds one side of a collective: packed blocks, by rank of the group.
struct Side {
  std::byte* data = nullptr;
  std::vector<int64_t> bytes;
  bool only_some = false;  // some ranks of the group have no block
};
struct Sides {
  Side send, receive;
};

class WireHooks {
 public:
  explicit WireHooks(LayerState& layer) : layer_(layer) {}

  /// Returns the gradient of the MoE part's output: where a norm is behind it, what the norm's backward left; else the
  /// hook's copy of what the loss gave, or that itself.
  TensorView moe_gradient() const;
  /// These two call the hook at the MoE part's begin and end; its first and its last task call them.
  void begin_moe(Phase phase) const;
  void end_moe(Phase phase) const;

  bool any() const { return layer_.parts.hook != nullptr; }
  /// Both enqueue the hook's call for an exchange of `rows`; the first returns what then goes over the wire.
  Sides before_exchange(const Task& task, const Sides& rows, const CommCall& call) const;
  void after_exchange(const Task& task, const Sides& rows, const CommCall& call) const;

 private:
  struct Converted {
    TensorView rows, wire;
  };
  /// Converts a side: `buffer` is the wire's where its type isn't the layer's; else the rows are sent in place.
  Converted converted(const Side& side, TensorView buffer) const;
  Side on_wire(const Side& rows, TensorView wire) const;

  LayerState& layer_;
};

}  // namespace moe::layer
