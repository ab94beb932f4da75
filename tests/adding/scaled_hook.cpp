// Sends rows scaled by a power of two, so that small gradients keep their bits on a narrow wire, and undoes it.
#include "tests/adding/parts.h"

namespace moe {
namespace {

class ScaledHook final : public Hook {
 public:
  explicit ScaledHook(Math& math) : math_(math) {}
  void before_dispatch(Phase, TensorView rows, TensorView wire) override { send(rows, wire); }
  void after_dispatch(Phase, TensorView wire, TensorView rows) override { receive(wire, rows); }
  void before_combine(Phase, TensorView rows, TensorView wire) override { send(rows, wire); }
  void after_combine(Phase, TensorView wire, TensorView rows) override { receive(wire, rows); }

 private:
  static constexpr double kScale = 1024;
  // The wire has the layer's own element type, so it is the same memory as the rows.
  void send(TensorView, TensorView wire) { math_.scale(wire, kScale); }
  void receive(TensorView, TensorView rows) { math_.scale(rows, 1 / kScale); }

  Math& math_;
};

}  // namespace

std::unique_ptr<Hook> make_scaled_hook(Math& math) { return std::make_unique<ScaledHook>(math); }

}  // namespace moe
