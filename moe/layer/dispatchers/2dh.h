#pragma once
// 2DH (Tutel, DeepSpeed-MoE): an AlltoAll inside the node, then one among the ranks at the same position of every node:
// of n peers a node, n messages of n blocks between two nodes instead of n^2 of one. On one node, or with one peer a
// node, it is the plain AlltoAll that these steps come to.
#include <memory>

#include "moe/layer/dispatchers/dispatcher.h"

namespace moe {

/// Makes the dispatcher. Throws Unsupported as split_by_node() does (hierarchy.h).
std::unique_ptr<Dispatcher> make_2dh_dispatcher(const DispatcherSetup& setup);

}  // namespace moe
