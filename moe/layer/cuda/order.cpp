// Orders by kernels. Tutel's gathers: it reads tokens by slot to make rows, and rows by pair to make tokens. GShard's
// masks are made by kernels, and multiplied by the GEMMs of moe/layer/orders/gshard.h. If a gate mixes tokens, every
// row has all of them, so either order is those GEMMs.
#include "moe/layer/cuda/kernels.h"
#include "moe/layer/cuda/layer_device.h"
#include "moe/layer/orders/gshard.h"

namespace moe::cuda {
namespace {

constexpr int64_t kMaxChoices = 32;

class CudaMasks final : public Masks {
 public:
  CudaMasks(CudaMath& math, DType dtype) : math_(math), dtype_(dtype) {}

  void spread(const Routing& routing, const Cell& cell, TensorView values, TensorView mask) override {
    spread_mask(work(), mask_of(routing, cell), values.data(), mask.data());
  }
  void pick(const Routing& routing, const Cell& cell, TensorView products, TensorView values) override {
    pick_masked(work(), mask_of(routing, cell), products.data(), values.data());
  }
  void clear(TensorView t) override { math_.memory().clear(t.data(), t.bytes(), math_.stream()); }

 private:
  static MaskCell mask_of(const Routing& r, const Cell& cell) {
    MaskCell mask{.tokens = r.group_tokens,
                  .first_token = cell.group * r.group_tokens,
                  .choices = r.choices,
                  .rows = cell.rows,
                  .filled = r.mixes() ? r.rows : r.slots(),
                  .first_choice = cell.expert * r.rows};
    if (!r.mixes()) mask.pair_of = r.device.pair_of.data() + (cell.group * r.experts + cell.expert) * r.slots();
    require<Unsupported>(!r.mixes() || r.choices == r.experts * r.rows,
                         "a mixing gate on CUDA: found {} choices a token, expected one for each of {} rows", r.choices,
                         r.experts * r.rows);
    return mask;
  }
  Work work() const { return {math_.stream(), dtype_}; }

  CudaMath& math_;
  DType dtype_;
};

RoutingArrays arrays_of(const Routing& r) {
  require<Unsupported>(r.choices <= kMaxChoices, "order tutel on CUDA: found {} choices a token, expected at most {}",
                       r.choices, kMaxChoices);
  return {r.tokens, r.choices, r.device.pair_of.size(), r.device.slot_of.data(), r.device.pair_of.data()};
}

PlacedRows placed(const Routing& r, RowsView rows) {
  const auto& places = rows.layout.on_device();
  require<WrongResult>(places != nullptr && places->reader == RowReader::order && places->max == r.slots(),
                       "the row layout was not copied to the device for an order of {} slots", r.slots());
  return {rows.data.data(), places->places.data()};
}

class CudaTutelOrder final : public Order {
 public:
  CudaTutelOrder(CudaMath& math, DType dtype)
      : math_(math), dtype_(dtype), mixing_(make_order("gshard", math, dtype)) {}

  void order(const Routing& routing, TensorView tokens, RowsView rows) override {
    if (routing.mixes()) return mixing_->order(routing, tokens, rows);
    order_rows(work(), arrays_of(routing), tokens.data(), placed(routing, rows), tokens.size(1));
  }

  void i_order(const Routing& routing, RowsView rows, TensorView output) override {
    if (routing.mixes()) return mixing_->i_order(routing, rows, output);
    combine_rows(work(), arrays_of(routing), {routing.weight.view().data(), placed(routing, rows), output.data()},
                 output.size(1));
  }

  void i_order_backward(const Routing& routing, TensorView d_output, RowsView rows, RowsView d_rows,
                        TensorView d_weight) override {
    if (routing.mixes()) return mixing_->i_order_backward(routing, d_output, rows, d_rows, d_weight);
    combine_rows_backward(work(), arrays_of(routing),
                          {routing.weight.view().data(), d_output.data(), placed(routing, rows),
                           placed(routing, d_rows), d_weight.data()},
                          d_output.size(1));
  }

  void order_backward(const Routing& routing, TensorView tokens, RowsView d_rows, TensorView d_tokens,
                      TensorView d_fill) override {
    if (routing.mixes()) return mixing_->order_backward(routing, tokens, d_rows, d_tokens, d_fill);
    combine_rows(work(), arrays_of(routing), {nullptr, placed(routing, d_rows), d_tokens.data()}, d_tokens.size(1));
  }

 private:
  Work work() const { return {math_.stream(), dtype_}; }
  CudaMath& math_;
  DType dtype_;
  std::unique_ptr<Order> mixing_;
};

}  // namespace

std::unique_ptr<Order> make_order(std::string_view name, CudaMath& math, DType dtype) {
  if (name == "gshard") return make_masked_order(math, std::make_unique<CudaMasks>(math, dtype), dtype);
  if (name == "tutel") return std::make_unique<CudaTutelOrder>(math, dtype);
  moe::make_order(name, accumulation_type(dtype));  // throws BadInput for an unknown name
  throw Unsupported(fmt::format("order {}: has no CUDA kernels, expected one of: gshard, tutel", name));
}

}  // namespace moe::cuda
