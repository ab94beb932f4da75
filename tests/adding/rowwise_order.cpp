// Row by row, one thread, for gates that do not mix tokens.
#include "moe/tensor/element.h"
#include "tests/adding/parts.h"

namespace moe {
namespace {

template <class T>
class RowwiseOrder final : public Order {
 public:
  explicit RowwiseOrder(DType) {}

  void order(const Routing& r, TensorView tokens, RowsView rows) override {
    std::fill_n(rows.data.as<T>(), rows.layout.elements(), T(0));
    each(
        r, rows, tokens, [](T* row, T* token, T&) { *row += *token; }, r.weight);
  }
  void i_order(const Routing& r, RowsView rows, TensorView output) override {
    std::fill_n(output.as<T>(), output.elements(), T(0));
    each(
        r, rows, output, [](T* row, T* token, T& weight) { *token += weight * *row; }, r.weight);
  }
  void i_order_backward(const Routing& r, TensorView d_output, RowsView rows, RowsView d_rows,
                        TensorView d_weight) override {
    std::fill_n(d_rows.data.as<T>(), d_rows.layout.elements(), T(0));
    each(
        r, d_rows, d_output, [](T* row, T* token, T& weight) { *row += weight * *token; }, r.weight);
    std::fill_n(d_weight.as<T>(), d_weight.elements(), T(0));
    each(
        r, rows, d_output, [](T* row, T* token, T& dw) { dw += *row * *token; }, d_weight);
  }
  void order_backward(const Routing& r, TensorView, RowsView d_rows, TensorView d_tokens, TensorView) override {
    std::fill_n(d_tokens.as<T>(), d_tokens.elements(), T(0));
    each(
        r, d_rows, d_tokens, [](T* row, T* token, T&) { *token += *row; }, r.weight);
  }

 private:
  // Calls body(element of the row, element of the token, the pair's number) for every kept pair that has its row here.
  template <class Body>
  static void each(const Routing& r, RowsView rows, TensorView tokens, Body body, TensorView of_pairs) {
    const int64_t width = tokens.size(1);
    for (int64_t pair = 0; pair < r.pairs(); ++pair) {
      const auto group = static_cast<int>(r.group_of(pair / r.choices));
      if (r.row[pair] == Routing::kDropped || !rows.layout.holds(group)) continue;
      T* row = rows.data.as<T>() + rows.layout.offset(group, r.expert[pair], r.row[pair]);
      T* token = tokens.as<T>() + pair / r.choices * width;
      for (int64_t i = 0; i < width; ++i) body(row + i, token + i, of_pairs.as<T>()[pair]);
    }
  }
};

}  // namespace

std::unique_ptr<Order> make_rowwise_order(DType dtype) { return make_for<Order, RowwiseOrder>(dtype, dtype); }

}  // namespace moe
