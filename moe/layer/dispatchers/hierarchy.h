#pragma once
// Splits an EP group by node: what dispatchers exchange on that treat the way inside a node and between nodes apart.
#include "moe/layer/dispatchers/dispatcher.h"

namespace moe {

/// Holds a rank's communicators. EP rank = position of its node among the group's x per_node() + position in the node.
struct Hierarchy {
  std::unique_ptr<Communicator> node;    // this rank's EP peers on its node, itself too
  std::unique_ptr<Communicator> across;  // those at its position on every node
  int64_t most_bytes = 0;                // of what an exchange sends
  int per_node() const { return node->size(); }
  int nodes() const { return across->size(); }
  /// Says whether there is one node, or one peer a node: nothing to do apart.
  bool flat() const { return per_node() == 1 || nodes() == 1; }
  /// Returns the size of a block; throws WrongResult if `blocks` are more than the dispatcher made room for.
  int64_t block_of(const Blocks& blocks) const;
};

/// Returns the call of a step that is not paced. An exchange is paced as a whole, by its collective between nodes: the
/// first that begins only when every rank of the group has come, which is when a collective's pace begins.
inline CommCall unpaced(const CommCall& call) { return {call.stream, {}, call.task}; }

/// Splits the EP group. Blocking; all its ranks call it. Throws Unsupported naming `dispatcher` and the group, on all
/// its ranks, unless blocks are equal and every node holds as many peers.
Hierarchy split_by_node(const DispatcherSetup& setup, std::string_view dispatcher);

struct BlockGrid {
  int rows = 0, columns = 0;
  int64_t bytes = 0;  // of a block
};
/// Enqueues to[column][row] = from[row][column], both in `memory`; both must live until the stream passed it.
void transpose_blocks(Stream& stream, MemorySpace& memory, const BlockGrid& grid, const void* from, void* to);

}  // namespace moe
