#pragma once
// The parts that docs/adding.md shows, one file each.
#include "moe/layer/dispatchers/dispatcher.h"
#include "moe/layer/experts/expert.h"
#include "moe/layer/gates/gate.h"
#include "moe/layer/hooks/hook.h"
#include "moe/layer/orders/order.h"
#include "moe/schedule/schedule.h"

namespace moe {

std::unique_ptr<Gate> make_relu_gate(const PartSetup& setup);
std::unique_ptr<Order> make_rowwise_order(DType dtype);
std::unique_ptr<Dispatcher> make_gathered_dispatcher(const DispatcherSetup& setup);
std::unique_ptr<Expert> make_relu_expert(const PartSetup& setup);
std::unique_ptr<Hook> make_scaled_hook(Math& math);
extern const Schedule kLagged;

}  // namespace moe
