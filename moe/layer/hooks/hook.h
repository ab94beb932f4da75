#pragma once
// A hook is called at six points of the MoE part (FSMoE section 3), forward and backward, and may change what passes:
// compress it, scale it, look at it. A new one derives from Hook and has a row in hook.cpp, and its name and summary in
// moe/shape/parts.h; wire_type() (moe/shape/shape.cpp) says what element type it sends.
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

/// Functions called at those points, which run on the lanes of the tasks that they belong to, perhaps several at once.
/// Exchanges' points are called once for each exchange over more than one rank, with all its blocks.
class Hook {
 public:
  virtual ~Hook() = default;
  /// Gets (gated tokens, M), in place: the hidden states before norm and gate; backward, a copy of the output's
  /// gradient.
  virtual void before_moe_start(Phase, TensorView) {}
  /// Gets what this rank sends, (rows, M), and writes `wire`, of the wire's type. Where that is the layer's own, `wire`
  /// is `rows`.
  virtual void before_dispatch(Phase, TensorView /*rows*/, TensorView /*wire*/) {}
  /// Gets what this rank received, and writes `rows`.
  virtual void after_dispatch(Phase, TensorView /*wire*/, TensorView /*rows*/) {}
  virtual void before_combine(Phase, TensorView /*rows*/, TensorView /*wire*/) {}
  virtual void after_combine(Phase, TensorView /*wire*/, TensorView /*rows*/) {}
  /// Gets (gated tokens, M), in place: the output, residual included; backward, the hidden states' gradient.
  virtual void before_moe_end(Phase, TensorView) {}
  /// Bounds by how much of its size an exchange may change an element of `dtype`. The layer's verification allows for
  /// that.
  virtual double relative_error(DType /*dtype*/) const { return 0; }
};

struct HookRow {
  std::string_view name = {};
  std::unique_ptr<Hook> (*make)(Math& math);
};

/// Makes a hook known as register_gate() does a gate.
void register_hook(const Part& part, HookRow row);
/// Makes the hook of that name; null for "none". Throws BadInput listing the known names.
std::unique_ptr<Hook> make_hook(std::string_view name, Math& math = cpu_math());
/// Returns "none", "bf16", ...
std::vector<std::string_view> hook_names();

// The hook that sends float32 and float64 rows as bfloat16, rounded to nearest even: a half or a quarter of the bytes.

std::unique_ptr<Hook> make_bf16_hook(Math& math);

}  // namespace moe
