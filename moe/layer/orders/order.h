#pragma once
// An order copies tokens (N, M) into the experts' rows and back. A new one derives from Order and has a row in
// order.cpp, and its name and summary in moe/shape/parts.h.
#include <memory>
#include <string_view>
#include <vector>

#include "moe/shape/parts.h"
#include "moe/sharding/routing.h"
#include "moe/sharding/row_layout.h"

namespace moe {

/// Rows of this rank's groups of tokens (the layout's streams) and all experts, and their layout. A layout may hold
/// only some groups: other ranks send the rest.
struct RowsView {
  TensorView data;
  const RowLayout& layout;
};

class Order {
 public:
  virtual ~Order() = default;
  /// Computes rows[expert, row] = sum of fill * tokens[token] over the pairs of that row; 0 in empty rows.
  virtual void order(const Routing& routing, TensorView tokens, RowsView rows) = 0;
  /// Computes output[token] = sum over its pairs of weight * rows[expert, row]. `rows` hold every group.
  virtual void i_order(const Routing& routing, RowsView rows, TensorView output) = 0;
  /// Computes the transpose of i_order: d_rows = sum of weight * d_output, 0 in empty rows; d_weight = <d_output,
  /// rows>, 0 for dropped pairs. `rows` are the input of i_order, for every group.
  virtual void i_order_backward(const Routing& routing, TensorView d_output, RowsView rows, RowsView d_rows,
                                TensorView d_weight) = 0;
  /// Computes the transpose of order: d_tokens[token] = sum over its pairs of fill * d_rows[expert, row], for every
  /// group. If the gate mixes tokens: d_fill = <d_rows, tokens>, 0 for dropped pairs.
  virtual void order_backward(const Routing& routing, TensorView tokens, RowsView d_rows, TensorView d_tokens,
                              TensorView d_fill) = 0;
};

struct OrderRow {
  std::string_view name = {};
  std::unique_ptr<Order> (*make)(DType dtype);
};

/// Registers an order, as register_gate() does a gate.
void register_order(const Part& part, OrderRow row);
/// Makes the order of that name. Throws BadInput listing the known names.
std::unique_ptr<Order> make_order(std::string_view name, DType dtype);
/// Returns "tutel", ...
std::vector<std::string_view> order_names();

}  // namespace moe
