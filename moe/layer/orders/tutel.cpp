#include "moe/layer/orders/tutel.h"

#include <algorithm>

#include "moe/layer/element.h"

namespace moe {
namespace {

template <class T>
class TutelOrder final : public Order {
 public:
  explicit TutelOrder(DType) {}

  void order(const Routing& routing, TensorView tokens, RowsView rows) override {
    const int64_t width = tokens.size(1);
    if (routing.mixes()) return mix(routing, tokens, rows);
    for_each_kept(routing, rows.layout, [&](int64_t token, int64_t, int64_t at) {
      std::copy_n(tokens.as<T>() + token * width, width, rows.data.as<T>() + at);
    });
    clear_rows(routing, rows, width, false);
  }

  void i_order(const Routing& routing, RowsView rows, TensorView output) override {
    const int64_t width = output.size(1);
    const T* weight = values(routing.weight);
    std::fill_n(output.as<T>(), output.elements(), T(0));
    for_each_kept(routing, rows.layout, [&](int64_t token, int64_t pair, int64_t at) {
      add_scaled(rows.data.as<T>() + at, weight[pair], output.as<T>() + token * width, width);
    });
  }

  void i_order_backward(const Routing& routing, TensorView d_output, RowsView rows, RowsView d_rows,
                        TensorView d_weight) override {
    const int64_t width = d_output.size(1);
    const T* weight = values(routing.weight);
    std::fill_n(d_weight.as<T>(), d_weight.elements(), T(0));
    for_each_kept(routing, rows.layout, [&](int64_t token, int64_t pair, int64_t at) {
      d_weight.as<T>()[pair] = dot(d_output.as<T>() + token * width, rows.data.as<T>() + at, width);
    });
    clear_rows(routing, d_rows, width, routing.mixes());
    for_each_kept(routing, d_rows.layout, [&](int64_t token, int64_t pair, int64_t at) {
      const T *dy = d_output.as<T>() + token * width, w = weight[pair];
      T* d_row = d_rows.data.as<T>() + at;
      if (routing.mixes()) return add_scaled(dy, w, d_row, width);
      for (int64_t j = 0; j < width; ++j) d_row[j] = w * dy[j];
    });
  }

  void order_backward(const Routing& routing, TensorView tokens, RowsView d_rows, TensorView d_tokens,
                      TensorView d_fill) override {
    const int64_t width = d_tokens.size(1);
    const T* fill = routing.mixes() ? values(routing.fill) : nullptr;
    std::fill_n(d_tokens.as<T>(), d_tokens.elements(), T(0));
    if (fill != nullptr) std::fill_n(d_fill.as<T>(), d_fill.elements(), T(0));
    for_each_kept(routing, d_rows.layout, [&](int64_t token, int64_t pair, int64_t at) {
      const T* row = d_rows.data.as<T>() + at;
      add_scaled(row, fill == nullptr ? T(1) : fill[pair], d_tokens.as<T>() + token * width, width);
      if (fill != nullptr) d_fill.as<T>()[pair] = dot(tokens.as<T>() + token * width, row, width);
    });
  }

 private:
  static T* values(const Tensor& t) { return t.view().template as<T>(); }
  static void add_scaled(const T* from, T by, T* to, int64_t width) {
    for (int64_t j = 0; j < width; ++j) to[j] += by * from[j];
  }
  static T dot(const T* a, const T* b, int64_t width) {
    T sum = 0;
    for (int64_t j = 0; j < width; ++j) sum += a[j] * b[j];
    return sum;
  }

  // Calls body(token, pair, offset of its row) for every pair that was not dropped, of the groups that `layout` holds.
  template <class Body>
  static void for_each_kept(const Routing& routing, const RowLayout& layout, Body body) {
    for (int64_t token = 0; token < routing.tokens; ++token) {
      const int group = static_cast<int>(routing.group_of(token));
      if (!layout.holds(group)) continue;
      for (int64_t pair = token * routing.choices; pair < (token + 1) * routing.choices; ++pair) {
        const auto p = static_cast<size_t>(pair);
        if (routing.row[p] != Routing::kDropped)
          body(token, pair, layout.offset(group, routing.expert[p], routing.row[p]));
      }
    }
  }

  static void mix(const Routing& routing, TensorView tokens, RowsView rows) {
    const int64_t width = tokens.size(1);
    const T* fill = values(routing.fill);
    clear_rows(routing, rows, width, true);
    for_each_kept(routing, rows.layout, [&](int64_t token, int64_t pair, int64_t at) {
      add_scaled(tokens.as<T>() + token * width, fill[pair], rows.data.as<T>() + at, width);
    });
  }

  // Of the groups held, the rows that no token fills, or all.
  static void clear_rows(const Routing& routing, RowsView rows, int64_t width, bool all) {
    for (int group = 0; group < routing.groups(); ++group) {
      if (!rows.layout.holds(group)) continue;
      for (int64_t e = 0; e < routing.experts; ++e)
        for (int64_t row = all ? 0 : routing.filled[static_cast<size_t>(group * routing.experts + e)];
             row < rows.layout.count(group, e); ++row)
          std::fill_n(rows.data.as<T>() + rows.layout.offset(group, e, row), width, T(0));
    }
  }
};

}  // namespace

std::unique_ptr<Order> make_tutel_order(DType dtype) { return make_for<Order, TutelOrder>(dtype, dtype); }

}  // namespace moe
