#pragma once
// A hook is called at six points of the MoE part (FSMoE section 3), forward and backward, and may change the data
// there: compress it, scale it, inspect it. A new one derives from Hook and has a row in hook.cpp, and its name and
// summary in moe/shape/parts.h; wire_type() (moe/shape/shape.cpp) returns the element type that it sends.
//
// In the backward the points are passed in the order of the backward: rows of gradients go to the experts and come
// back. The gradients match the forward only if each point is the transpose of the one that it mirrors:
// before_moe_start of before_moe_end, dispatch's pair of combine's, and the other way round. A cast, forward and
// backward, is its own transpose; its rounding counts as noise.
#include <memory>
#include <string_view>
#include <vector>

#include "moe/plan/plan.h"
#include "moe/tensor/math.h"

namespace moe {

/// Functions called at those points. They run on the lanes of the tasks that they belong to, perhaps several at once.
/// Exchanges' points are called once for each exchange over more than one rank, with all its blocks.
class Hook {
 public:
  virtual ~Hook() = default;
  /// Gets (gated tokens, M), in place: the hidden states before norm and gate; backward, a copy of the output's
  /// gradient.
  virtual void before_moe_start(Phase, TensorView) {}
  /// Gets the rows that this rank sends, (rows, M), and writes `wire`, of the wire's type. If that is the layer's own
  /// type, `wire` is `rows`.
  virtual void before_dispatch(Phase, TensorView /*rows*/, TensorView /*wire*/) {}
  /// Gets in `wire` what this rank received, and writes `rows`.
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
