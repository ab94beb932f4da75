// Tutel's order by gathers: of slots when rows are made, of pairs when tokens are.
#include "moe/layer/cuda/kernels.h"
#include "moe/layer/cuda/layer_device.h"

namespace moe::cuda {
namespace {

constexpr int64_t kMostChoices = 32;

RoutingArrays arrays_of(const Routing& r) {
  require<Unsupported>(r.choices <= kMostChoices && !r.mixes(),
                       "order tutel on CUDA: found {} choices a token, expected at most {} and no mixing gate",
                       r.choices, kMostChoices);
  return {r.tokens, r.choices, r.device.pair_of.size(), r.device.slot_of.data(), r.device.pair_of.data()};
}

PlacedRows placed(RowsView rows) {
  require<WrongResult>(rows.layout.places() != nullptr, "a layout that was not put on the device");
  return {rows.data.data(), rows.layout.places()};
}

class CudaTutelOrder final : public Order {
 public:
  CudaTutelOrder(CudaMath& math, DType dtype) : math_(math), dtype_(dtype) {}

  void order(const Routing& routing, TensorView tokens, RowsView rows) override {
    order_rows(work(), arrays_of(routing), tokens.data(), placed(rows), tokens.size(1));
  }

  void i_order(const Routing& routing, RowsView rows, TensorView output) override {
    combine_rows(work(), arrays_of(routing), {routing.weight.view().data(), placed(rows), output.data()},
                 output.size(1));
  }

  void i_order_backward(const Routing& routing, TensorView d_output, RowsView rows, RowsView d_rows,
                        TensorView d_weight) override {
    math_.memory().clear(d_weight.data(), d_weight.bytes(), math_.stream());  // of what was dropped it stays 0
    combine_rows_backward(
        work(), arrays_of(routing),
        {routing.weight.view().data(), d_output.data(), placed(rows), placed(d_rows), d_weight.data()},
        d_output.size(1));
  }

  void order_backward(const Routing& routing, TensorView, RowsView d_rows, TensorView d_tokens, TensorView) override {
    combine_rows(work(), arrays_of(routing), {nullptr, placed(d_rows), d_tokens.data()}, d_tokens.size(1));
  }

 private:
  Work work() const { return {math_.stream(), dtype_}; }
  CudaMath& math_;
  DType dtype_;
};

}  // namespace

std::unique_ptr<Order> make_order(CudaMath& math, DType dtype) { return std::make_unique<CudaTutelOrder>(math, dtype); }

}  // namespace moe::cuda
