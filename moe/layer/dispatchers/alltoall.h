#pragma once
// The plain dispatcher: one AlltoAll over the EP group.
#include <memory>

#include "moe/layer/dispatchers/dispatcher.h"

namespace moe {

std::unique_ptr<Dispatcher> make_alltoall_dispatcher(const DispatcherSetup& setup);

}  // namespace moe
