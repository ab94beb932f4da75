#pragma once
// A hook is called at six points of the MoE part (FSMoE section 3), forward and backward, and may change what passes:
// compress it, scale it, look at it. A new one: derive, and add a row to hook.cpp and to moe/plan/shape.cpp, which says
// what element type it sends.
//
// In the backward the points are those of its own way: rows of gradients go to the experts and come back. For gradients
// to be those of what the forward computed, each point must be the transpose of the one it mirrors: before_moe_start of
// before_moe_end, dispatch's pair of combine's, and the other way round. A cast, forward and backward, is its own; its
// rounding counts as noise.
#include <memory>
#include <string_view>
#include <vector>

#include "moe/plan/plan.h"
#include "moe/tensor/math.h"

namespace moe {

/// Points run on the lanes of the tasks that they belong to, perhaps several at once. Exchanges' points are called once
/// for each exchange over more than one rank, with all its blocks.
class Hook {
 public:
  virtual ~Hook() = default;
  /// (gated tokens, M), in place: hidden states before norm and gate; backward, a copy of the output's gradient.
  virtual void before_moe_start(Phase, TensorView) {}
  /// What this rank sends, (rows, M). Writes `wire`, of the wire's type; where that is the layer's own, `wire` is
  /// `rows`.
  virtual void before_dispatch(Phase, TensorView /*rows*/, TensorView /*wire*/) {}
  /// What it received; writes `rows`.
  virtual void after_dispatch(Phase, TensorView /*wire*/, TensorView /*rows*/) {}
  virtual void before_combine(Phase, TensorView /*rows*/, TensorView /*wire*/) {}
  virtual void after_combine(Phase, TensorView /*wire*/, TensorView /*rows*/) {}
  /// (gated tokens, M), in place: the output, residual included; backward, the hidden states' gradient.
  virtual void before_moe_end(Phase, TensorView) {}
  /// By how much an exchange may change an element of `dtype`, of its size: what the layer's verification must allow
  /// for.
  virtual double relative_error(DType /*dtype*/) const { return 0; }
};

struct HookRow {
  std::string_view name;
  std::unique_ptr<Hook> (*make)(Math& math);
};

/// Null for "none". Throws BadInput listing the known names.
std::unique_ptr<Hook> make_hook(std::string_view name, Math& math = cpu_math());
/// "none", "bf16", ...
std::vector<std::string_view> hook_names();

}  // namespace moe
