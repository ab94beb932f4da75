#pragma once
// AlltoAlls in steps, inside nodes and between them: 1DH and 2DH.
#include <memory>

#include "moe/layer/dispatchers/dispatcher.h"

namespace moe {

// Splits an EP group by node, for dispatchers that exchange in separate steps inside a node and between nodes.

/// A rank's communicators. EP rank = position of its node among the group's x per_node() + position in the node.
struct Hierarchy {
  std::unique_ptr<Communicator> node;    // this rank's EP peers on its node, itself included
  std::unique_ptr<Communicator> across;  // the ranks at its position on every node
  int64_t max_bytes = 0;                 // bytes that an exchange sends at most
  int per_node() const { return node->size(); }
  int nodes() const { return across->size(); }
  /// Returns whether there is one node, or one peer per node: then there are no separate steps.
  bool flat() const { return per_node() == 1 || nodes() == 1; }
  /// Returns the size of a block; throws WrongResult if `blocks` are larger than the dispatcher has memory for.
  int64_t block_of(const Blocks& blocks) const;
};

/// Returns the call of a step without a pace. Only the collective between nodes is paced, for the whole exchange: it is
/// the first step that starts after all ranks of the group have joined, which is when a collective's pace begins.
inline CommCall unpaced(const CommCall& call) { return {call.stream, {}, call.task}; }

/// Splits the EP group. Blocking; all its ranks call it. Throws Unsupported naming `dispatcher` and the group, on all
/// its ranks, unless blocks are equal and every node holds the same number of peers.
Hierarchy split_by_node(const DispatcherSetup& setup, std::string_view dispatcher);

struct BlockGrid {
  int rows = 0, columns = 0;
  int64_t bytes = 0;  // bytes of a block
};
/// Enqueues to[column][row] = from[row][column]. Both buffers are in `memory` and must outlive the enqueued work.
void transpose_blocks(Stream& stream, MemorySpace& memory, const BlockGrid& grid, const void* from, void* to);

// 1DH (Hetu's hierarchical AlltoAll): each node's leader gathers its blocks, the leaders exchange them, and each
// scatters what arrived for its node. With n peers per node, two nodes exchange one message of n^2 blocks. On one node,
// or with one peer per node, the dispatcher is the plain AlltoAll.

/// Makes the dispatcher. Throws Unsupported as split_by_node() does.
std::unique_ptr<Dispatcher> make_1dh_dispatcher(const DispatcherSetup& setup);

// 2DH (Tutel, DeepSpeed-MoE): an AlltoAll inside the node, then one among the ranks at the same position of every node.
// With n peers per node, two nodes exchange n messages of n blocks instead of n^2 of one. On one node, or with one peer
// per node, the dispatcher is the plain AlltoAll.

/// Makes the dispatcher. Throws Unsupported as split_by_node() does.
std::unique_ptr<Dispatcher> make_2dh_dispatcher(const DispatcherSetup& setup);

}  // namespace moe
