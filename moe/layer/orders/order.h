#pragma once
// An order brings tokens (N, M) into the experts' rows and back. A new one: derive, and add a row to order.cpp.
#include <memory>
#include <string_view>
#include <vector>

#include "moe/layer/routing.h"
#include "moe/layer/wire.h"

namespace moe {

/// All experts' rows of one rank, T_rank E M elements, and how they lie.
struct WireView {
  TensorView data;
  const WireLayout& layout;
};

class Order {
 public:
  virtual ~Order() = default;
  /// rows[expert, row] = tokens[token] for every pair that was not dropped, 0 in empty rows.
  virtual void order(const Routing& routing, TensorView tokens, WireView rows) = 0;
  /// output[token] = sum over its choices of weight * rows[expert, row].
  virtual void i_order(const Routing& routing, WireView rows, TensorView output) = 0;
  /// Transpose of i_order: d_rows = weight * d_output, 0 in empty rows; d_weight = <d_output, rows>, 0 where dropped.
  /// `rows` are what i_order read.
  virtual void i_order_backward(const Routing& routing, TensorView d_output, WireView rows, WireView d_rows,
                                TensorView d_weight) = 0;
  /// Transpose of order: d_tokens[token] = sum over its choices of d_rows[expert, row].
  virtual void order_backward(const Routing& routing, WireView d_rows, TensorView d_tokens) = 0;
};

struct OrderRow {
  std::string_view name;
  std::unique_ptr<Order> (*make)(DType dtype);
};

/// Throws BadInput listing the known names.
std::unique_ptr<Order> make_order(std::string_view name, DType dtype);
/// "tutel", ...
std::vector<std::string_view> order_names();

}  // namespace moe
