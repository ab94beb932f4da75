#pragma once
// A hook is called at six points of the MoE part (FSMoE section 3), forward and backward, and may change the data
// there: compress it, scale it, inspect it. A new one derives from Hook and has a row in hook.cpp, and its name and
// summary in moe/shape/parts.h; wire_type() (moe/shape/shape.cpp) returns the element type that it sends.
//
// The backward calls the points in the same order: rows of gradients are dispatched to the experts and combined. For
// correct gradients, a point's backward must be the transpose of the forward of its mirrored point: before_moe_start
// mirrors before_moe_end, and dispatch's two points mirror combine's. A hook that casts in both passes satisfies this
// except for rounding.
#include <memory>
#include <string_view>
#include <vector>

#include "moe/plan/plan.h"
#include "moe/tensor/math.h"

namespace moe {

/// The functions called at the six points. They run on the lanes of their tasks, so several may run at once. The points
/// of dispatch and combine are called once per exchange over more than one rank, with all blocks of the exchange.
class Hook {
 public:
  virtual ~Hook() = default;
  /// Gets (gated tokens, M), in place: the hidden states before norm and gate; backward, a copy of the output's
  /// gradient.
  virtual void before_moe_start(Phase, TensorView) {}
  /// Gets the rows that this rank sends, (rows, M), and writes `wire`, of the wire's type. If that is the layer's own
  /// type, `wire` is `rows`.
  virtual void before_dispatch(Phase, TensorView /*rows*/, TensorView /*wire*/) {}
  /// Gets the received elements in `wire`, and writes `rows`.
  virtual void after_dispatch(Phase, TensorView /*wire*/, TensorView /*rows*/) {}
  virtual void before_combine(Phase, TensorView /*rows*/, TensorView /*wire*/) {}
  virtual void after_combine(Phase, TensorView /*wire*/, TensorView /*rows*/) {}
  /// Gets (gated tokens, M), in place: the output, residual included; backward, the hidden states' gradient.
  virtual void before_moe_end(Phase, TensorView) {}
  /// Returns a bound on the relative change of an element of `dtype` in an exchange. The layer's verification allows
  /// for it.
  virtual double relative_error(DType /*dtype*/) const { return 0; }
};

struct HookRow {
  std::string_view name = {};
  std::unique_ptr<Hook> (*make)(Math& math);
};

/// Registers a hook, as register_gate() does a gate.
void register_hook(const Part& part, HookRow row);
/// Makes the hook of that name; null for "none". Throws BadInput listing the known names.
std::unique_ptr<Hook> make_hook(std::string_view name, Math& math = cpu_math());
/// Returns "none", "bf16", ...
std::vector<std::string_view> hook_names();

// The hook that sends float32 and float64 rows as bfloat16, rounded to nearest even: a half or a quarter of the bytes.

std::unique_ptr<Hook> make_bf16_hook(Math& math);

}  // namespace moe
