#include "moe/layer/orders/order.h"

#include <array>

#include "moe/base/registry.h"
#include "moe/layer/orders/gshard.h"
#include "moe/layer/orders/tutel.h"
#include "moe/shape/parts.h"

namespace moe {
namespace {

constexpr std::array kOrders{OrderRow{"gshard", make_gshard_order}, OrderRow{"tutel", make_tutel_order}};
static_assert(same_names(kOrders, kOrderParts), "an order has a row here and one in moe/shape/parts.h");

Registry<OrderRow>& orders() {
  static Registry<OrderRow> rows(kOrders);
  return rows;
}

}  // namespace

void register_order(const Part& part, OrderRow row) {
  row.name = part.name;
  order_parts().add(part, "order");
  orders().add(row, "order");
}

std::unique_ptr<Order> make_order(std::string_view name, DType dtype) {
  return find_named(orders(), name, "order").make(dtype);
}

std::vector<std::string_view> order_names() { return row_names(orders()); }

}  // namespace moe
