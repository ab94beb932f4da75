#pragma once
// 1DH (Hetu's hierarchical AlltoAll): each node's blocks are gathered by its leader, the leaders exchange them, and
// each scatters what came for its node: of n peers a node, one message of n^2 blocks between two nodes. On one node, or
// with one peer a node, it is the plain AlltoAll that these steps come to.
#include <memory>

#include "moe/layer/dispatchers/dispatcher.h"

namespace moe {

/// Makes the dispatcher. Throws Unsupported as split_by_node() does (hierarchy.h).
std::unique_ptr<Dispatcher> make_1dh_dispatcher(const DispatcherSetup& setup);

}  // namespace moe
