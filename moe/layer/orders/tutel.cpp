#include "moe/layer/orders/tutel.h"

#include <algorithm>

#include "moe/layer/element.h"

namespace moe {
namespace {

template <class T>
class TutelOrder final : public Order {
 public:
  explicit TutelOrder(DType) {}

  void order(const Routing& routing, TensorView tokens, WireView rows) override {
    const int64_t width = tokens.size(1);
    for_each_kept(routing, rows.layout, [&](int64_t token, int64_t, int64_t at) {
      std::copy_n(tokens.as<T>() + token * width, width, rows.data.as<T>() + at);
    });
    clear_empty_rows(routing, rows, width);
  }

  void i_order(const Routing& routing, WireView rows, TensorView output) override {
    const int64_t width = output.size(1);
    const T* weight = routing.weight.view().template as<T>();
    std::fill_n(output.as<T>(), output.elements(), T(0));
    for_each_kept(routing, rows.layout, [&](int64_t token, int64_t pair, int64_t at) {
      const T *row = rows.data.as<T>() + at, w = weight[pair];
      T* out = output.as<T>() + token * width;
      for (int64_t j = 0; j < width; ++j) out[j] += w * row[j];
    });
  }

  void i_order_backward(const Routing& routing, TensorView d_output, WireView rows, WireView d_rows,
                        TensorView d_weight) override {
    const int64_t width = d_output.size(1);
    const T* weight = routing.weight.view().template as<T>();
    std::fill_n(d_weight.as<T>(), d_weight.elements(), T(0));
    for (int64_t pair = 0; pair < routing.pairs(); ++pair) {
      const auto p = static_cast<size_t>(pair);
      if (routing.row[p] == Routing::kDropped) continue;
      const T* dy = d_output.as<T>() + pair / routing.top_k * width;
      const T* row = rows.data.as<T>() + rows.layout.offset(routing.expert[p], routing.row[p]);
      T* d_row = d_rows.data.as<T>() + d_rows.layout.offset(routing.expert[p], routing.row[p]);
      T dot = 0;
      for (int64_t j = 0; j < width; ++j) {
        d_row[j] = weight[pair] * dy[j];
        dot += dy[j] * row[j];
      }
      d_weight.as<T>()[pair] = dot;
    }
    clear_empty_rows(routing, d_rows, width);
  }

  void order_backward(const Routing& routing, WireView d_rows, TensorView d_tokens) override {
    const int64_t width = d_tokens.size(1);
    std::fill_n(d_tokens.as<T>(), d_tokens.elements(), T(0));
    for_each_kept(routing, d_rows.layout, [&](int64_t token, int64_t, int64_t at) {
      const T* row = d_rows.data.as<T>() + at;
      T* out = d_tokens.as<T>() + token * width;
      for (int64_t j = 0; j < width; ++j) out[j] += row[j];
    });
  }

 private:
  // Calls body(token, pair, offset of its row) for every pair that was not dropped.
  template <class Body>
  static void for_each_kept(const Routing& routing, const WireLayout& layout, Body body) {
    for (int64_t pair = 0; pair < routing.pairs(); ++pair) {
      const auto p = static_cast<size_t>(pair);
      if (routing.row[p] != Routing::kDropped)
        body(pair / routing.top_k, pair, layout.offset(routing.expert[p], routing.row[p]));
    }
  }

  static void clear_empty_rows(const Routing& routing, WireView rows, int64_t width) {
    for (int64_t expert = 0; expert < routing.experts; ++expert)
      for (int64_t row = routing.filled[static_cast<size_t>(expert)]; row < routing.rows; ++row)
        std::fill_n(rows.data.as<T>() + rows.layout.offset(expert, row), width, T(0));
  }
};

}  // namespace

std::unique_ptr<Order> make_tutel_order(DType dtype) { return make_for<Order, TutelOrder>(dtype, dtype); }

}  // namespace moe
