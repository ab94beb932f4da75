#include "moe/layer/orders/gshard.h"

#include <algorithm>
#include <numeric>

#include "moe/tensor/element.h"

namespace moe {
namespace {

class MaskedOrder final : public Order {
 public:
  MaskedOrder(Math& math, std::unique_ptr<Masks> masks, DType dtype)
      : math_(math), masks_(std::move(masks)), dtype_(dtype) {}

  void order(const Routing& routing, TensorView tokens, RowsView rows) override {
    fill_rows(routing, routing.fill, tokens, rows);
  }

  void i_order(const Routing& routing, RowsView rows, TensorView output) override {
    add_rows(routing, routing.weight, rows, output);
  }

  void i_order_backward(const Routing& routing, TensorView d_output, RowsView rows, RowsView d_rows,
                        TensorView d_weight) override {
    fill_rows(routing, routing.weight, d_output, d_rows);
    multiply(routing, d_output, rows, d_weight);
  }

  void order_backward(const Routing& routing, TensorView tokens, RowsView d_rows, TensorView d_tokens,
                      TensorView d_fill) override {
    add_rows(routing, routing.fill, d_rows, d_tokens);
    if (routing.mixes()) multiply(routing, tokens, d_rows, d_fill);
  }

 private:
  template <class Body>
  static void for_each_cell(const Routing& routing, const RowLayout& layout, Body body) {
    for (int group = 0; group < routing.groups(); ++group)
      for (int64_t e = 0; layout.holds(group) && e < routing.experts; ++e) body(Cell{group, e, layout.count(group, e)});
  }

  // Calls body(consecutive rows, the place of the first one in the cell).
  template <class Body>
  static void for_each_run(RowsView rows, const Cell& cell, int64_t width, Body body) {
    for (int chunk = 0; chunk < rows.layout.degree(); ++chunk) {
      const Rows run = rows.layout.rows_of(cell.group, cell.expert, rows.layout.chunk(chunk));
      if (run.count() == 0) continue;
      body(matrix(rows.data.part(rows.layout.offset(cell.group, cell.expert, run.begin), {run.count(), width})),
           run.begin);
    }
  }

  static Matrix group_rows(const Routing& routing, TensorView tokens, const Cell& cell) {
    const int64_t width = tokens.size(1);
    return matrix(tokens.part(cell.group * routing.group_tokens * width, {routing.group_tokens, width}));
  }

  // Computes rows = the mask's transpose * tokens.
  void fill_rows(const Routing& routing, TensorView values, TensorView tokens, RowsView rows) {
    for_each_cell(routing, rows.layout, [&](const Cell& cell) {
      const TensorView mask = dense(routing, cell);
      masks_->spread(routing, cell, values, mask);
      for_each_run(rows, cell, tokens.size(1), [&](Matrix run, int64_t first) {
        math_.gemm(transpose(columns(mask, first, run.rows)), group_rows(routing, tokens, cell), run);
      });
    });
  }

  // Computes out = sum over the experts of mask * rows.
  void add_rows(const Routing& routing, TensorView values, RowsView rows, TensorView out) {
    masks_->clear(out);
    for_each_cell(routing, rows.layout, [&](const Cell& cell) {
      const TensorView mask = dense(routing, cell);
      masks_->spread(routing, cell, values, mask);
      for_each_run(rows, cell, out.size(1), [&](Matrix run, int64_t first) {
        math_.gemm(columns(mask, first, run.rows), run, group_rows(routing, out, cell), Into::add);
      });
    });
  }

  // Computes out[pair] = <its token, its row>, 0 for dropped pairs: from all products of a cell the mask picks those of
  // its pairs.
  void multiply(const Routing& routing, TensorView tokens, RowsView rows, TensorView out) {
    masks_->clear(out);
    for_each_cell(routing, rows.layout, [&](const Cell& cell) {
      const TensorView products = dense(routing, cell);
      for_each_run(rows, cell, tokens.size(1), [&](Matrix run, int64_t first) {
        math_.gemm(group_rows(routing, tokens, cell), transpose(run), columns(products, first, run.rows));
      });
      masks_->pick(routing, cell, products, out);
    });
  }

  // Returns a matrix (tokens of a group, rows of an expert).
  TensorView dense(const Routing& routing, const Cell& cell) {
    if (dense_.view().rank() == 0 || dense_.view().elements() < routing.group_tokens * cell.rows)
      dense_ = Tensor({routing.group_tokens * cell.rows}, dtype_, math_.memory());
    return dense_.view().part(0, {routing.group_tokens, cell.rows});
  }

  Math& math_;
  std::unique_ptr<Masks> masks_;
  DType dtype_;
  Tensor dense_;
};

template <class T>
class CpuMasks final : public Masks {
 public:
  explicit CpuMasks(DType) {}

  void spread(const Routing& routing, const Cell& cell, TensorView values, TensorView mask) override {
    const T* value = values.as<T>();
    clear(mask);
    for (const int32_t pair : pairs_of(routing, cell))
      mask.as<T>()[place(routing, cell, pair)] += value == nullptr ? T(1) : value[pair];
  }

  void pick(const Routing& routing, const Cell& cell, TensorView products, TensorView values) override {
    for (const int32_t pair : pairs_of(routing, cell))
      values.as<T>()[pair] = products.as<T>()[place(routing, cell, pair)];
  }

  void clear(TensorView t) override { std::fill_n(t.as<T>(), t.elements(), T(0)); }

 private:
  static int64_t place(const Routing& routing, const Cell& cell, int32_t pair) {
    return (pair / routing.choices - cell.group * routing.group_tokens) * cell.rows + routing.row[pair];
  }

  // Returns a cell's pairs; all callers visit a group's cells expert by expert.
  std::span<const int32_t> pairs_of(const Routing& routing, const Cell& cell) {
    if (cell.expert == 0) sort_pairs(routing, cell.group);
    const auto e = static_cast<size_t>(cell.expert);
    return std::span(pairs_).subspan(ends_[e], ends_[e + 1] - ends_[e]);
  }

  // Sorts a group's pairs that were not dropped, expert after expert.
  void sort_pairs(const Routing& routing, int group) {
    const int64_t first = group * routing.group_tokens * routing.choices;
    const int64_t last = first + routing.group_tokens * routing.choices;
    const auto for_each_kept = [&](auto body) {
      for (int64_t p = first; p < last; ++p)
        if (const auto i = static_cast<size_t>(p); routing.row[i] != Routing::kDropped)
          body(static_cast<int32_t>(p), static_cast<size_t>(routing.expert[i]));
    };
    ends_.assign(static_cast<size_t>(routing.experts) + 1, 0);
    for_each_kept([&](int32_t, size_t expert) { ++ends_[expert + 1]; });
    std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
    pairs_.resize(ends_.back());
    std::vector<size_t> next(ends_.begin(), ends_.end() - 1);
    for_each_kept([&](int32_t pair, size_t expert) { pairs_[next[expert]++] = pair; });
  }

  std::vector<int32_t> pairs_;
  std::vector<size_t> ends_;  // end of each expert's pairs, after a 0
};

}  // namespace

std::unique_ptr<Order> make_masked_order(Math& math, std::unique_ptr<Masks> masks, DType dtype) {
  return std::make_unique<MaskedOrder>(math, std::move(masks), dtype);
}

std::unique_ptr<Order> make_gshard_order(DType dtype) {
  return make_masked_order(cpu_math(), make_for<Masks, CpuMasks>(dtype, dtype), dtype);
}

}  // namespace moe
