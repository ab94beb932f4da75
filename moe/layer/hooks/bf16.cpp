#include "moe/layer/hooks/bf16.h"

namespace moe {
namespace {

class Bf16Hook final : public Hook {
 public:
  explicit Bf16Hook(Math& math) : math_(math) {}
  void before_dispatch(Phase, TensorView rows, TensorView wire) override { math_.convert(rows, wire); }
  void after_dispatch(Phase, TensorView wire, TensorView rows) override { math_.convert(wire, rows); }
  void before_combine(Phase, TensorView rows, TensorView wire) override { math_.convert(rows, wire); }
  void after_combine(Phase, TensorView wire, TensorView rows) override { math_.convert(wire, rows); }
  // Half the last of 8 bits; 16-bit elements go as they are.
  double relative_error(DType dtype) const override { return bytes_of(dtype) > 2 ? 0x1p-8 : 0; }

 private:
  Math& math_;
};

}  // namespace

std::unique_ptr<Hook> make_bf16_hook(Math& math) { return std::make_unique<Bf16Hook>(math); }

}  // namespace moe
