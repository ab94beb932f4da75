#include "moe/layer/orders/tutel.h"

#include <algorithm>

#include "moe/tensor/cpu/math.h"
#include "moe/tensor/cpu/row_kernels.h"
#include "moe/tensor/element.h"

namespace moe {
namespace {

// Threads divide the tokens, each with all its pairs, among them; if many tokens share a row, they divide the columns.
template <class T>
class TutelOrder final : public Order {
 public:
  explicit TutelOrder(DType) {}

  void order(const Routing& routing, TensorView tokens, RowsView rows) override {
    if (routing.mixes()) return mix(routing, routing.fill.as<T>(), tokens, rows);
    const int64_t width = tokens.size(1);
    clear_rows(routing, rows, width, false);
    for_each_token(routing, width, [&](int64_t token) {
      for_each_kept(routing, rows.layout, token, [&](int64_t, int64_t at) {
        std::copy_n(tokens.as<T>() + token * width, width, rows.data.as<T>() + at);
      });
    });
  }

  void i_order(const Routing& routing, RowsView rows, TensorView output) override {
    const T* weight = routing.weight.as<T>();
    for_each_token(routing, output.size(1), [&](int64_t token) {
      gather(
          routing, token, [&](int64_t pair) { return weight[pair]; }, rows, output);
    });
  }

  void i_order_backward(const Routing& routing, TensorView d_output, RowsView rows, RowsView d_rows,
                        TensorView d_weight) override {
    const int64_t width = d_output.size(1);
    const T* weight = routing.weight.as<T>();
    clear_rows(routing, d_rows, width, routing.mixes());
    for_each_token(routing, width, [&](int64_t token) {
      const int group = static_cast<int>(routing.group_of(token));
      if (routing.mixes() || !d_rows.layout.holds(group))
        return dot_with_rows(routing, token, d_output, rows, d_weight);
      std::fill_n(d_weight.as<T>() + token * routing.choices, routing.choices, T(0));
      for_each_kept(routing, rows.layout, token, [&](int64_t pair, int64_t at) {
        T* to = d_rows.data.as<T>() + d_rows.layout.offset(group, routing.expert[pair], routing.row[pair]);
        d_weight.as<T>()[pair] =
            scale_and_dot(d_output.as<T>() + token * width, weight[pair], rows.data.as<T>() + at, to, width);
      });
    });
    if (routing.mixes()) mix(routing, weight, d_output, d_rows);
  }

  void order_backward(const Routing& routing, TensorView tokens, RowsView d_rows, TensorView d_tokens,
                      TensorView d_fill) override {
    const int64_t width = d_tokens.size(1);
    const T* fill = routing.mixes() ? routing.fill.as<T>() : nullptr;
    for_each_token(routing, width, [&](int64_t token) {
      gather(
          routing, token, [&](int64_t pair) { return fill == nullptr ? T(1) : fill[pair]; }, d_rows, d_tokens);
      if (fill != nullptr) dot_with_rows(routing, token, tokens, d_rows, d_fill);
    });
  }

 private:
  template <class Body>
  static void for_each_token(const Routing& routing, int64_t width, Body body) {
    parallel_for(routing.tokens, routing.choices * width * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) body(token);
    });
  }

  // Calls body(pair, offset of its row) for a token's pairs that were not dropped, if `layout` holds its group.
  template <class Body>
  static void for_each_kept(const Routing& routing, const RowLayout& layout, int64_t token, Body body) {
    const int group = static_cast<int>(routing.group_of(token));
    if (!layout.holds(group)) return;
    for (int64_t pair = token * routing.choices; pair < (token + 1) * routing.choices; ++pair) {
      if (routing.row[pair] != Routing::kDropped)
        body(pair, layout.offset(group, routing.expert[pair], routing.row[pair]));
    }
  }

  // Computes out[token] = sum over its pairs of by(pair) * its row.
  template <class By>
  static void gather(const Routing& routing, int64_t token, By by, RowsView rows, TensorView out) {
    const int64_t width = out.size(1);
    T* to = out.as<T>() + token * width;
    bool first = true;
    for_each_kept(routing, rows.layout, token, [&](int64_t pair, int64_t at) {
      const T* row = rows.data.as<T>() + at;
      if (first)
        scale_row(row, by(pair), to, width);
      else
        add_scaled(row, by(pair), to, width);
      first = false;
    });
    if (first) std::fill_n(to, width, T(0));
  }

  // Computes out[pair] = <tokens[token], its row> for all pairs of a token; 0 for dropped pairs.
  static void dot_with_rows(const Routing& routing, int64_t token, TensorView tokens, RowsView rows, TensorView out) {
    const int64_t width = tokens.size(1);
    std::fill_n(out.as<T>() + token * routing.choices, routing.choices, T(0));
    for_each_kept(routing, rows.layout, token, [&](int64_t pair, int64_t at) {
      out.as<T>()[pair] = dot(tokens.as<T>() + token * width, rows.data.as<T>() + at, width);
    });
  }

  // Computes rows = sum over the tokens of each row of by[pair] * token.
  static void mix(const Routing& routing, const T* by, TensorView tokens, RowsView rows) {
    const int64_t width = tokens.size(1);
    clear_rows(routing, rows, width, true);
    parallel_for(width, routing.pairs() * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
      for (int64_t token = 0; token < routing.tokens; ++token)
        for_each_kept(routing, rows.layout, token, [&](int64_t pair, int64_t at) {
          add_scaled(tokens.as<T>() + token * width + begin, by[pair], rows.data.as<T>() + at + begin, end - begin);
        });
    });
  }

  // Clears the rows that no token fills, or all rows, of the groups in the layout.
  static void clear_rows(const Routing& routing, RowsView rows, int64_t width, bool all) {
    for (int group = 0; group < routing.groups(); ++group) {
      if (!rows.layout.holds(group)) continue;
      for (int64_t e = 0; e < routing.experts; ++e)
        for (int64_t row = all ? 0 : routing.filled[group * routing.experts + e]; row < rows.layout.count(group, e);
             ++row)
          std::fill_n(rows.data.as<T>() + rows.layout.offset(group, e, row), width, T(0));
    }
  }
};

}  // namespace

std::unique_ptr<Order> make_tutel_order(DType dtype) { return make_for<Order, TutelOrder>(dtype, dtype); }

}  // namespace moe
