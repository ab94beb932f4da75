#include "moe/layer/dispatchers/hierarchy.h"

#include "moe/base/check.h"

namespace moe {

int64_t Hierarchy::block_of(const Blocks& blocks) const {
  const int64_t block = blocks.send_bytes.front();
  require<WrongResult>(block * per_node() * nodes() <= most_bytes, "{} blocks of {} bytes, expected at most {} in all",
                       per_node() * nodes(), block, most_bytes);
  return block;
}

Hierarchy split_by_node(const DispatcherSetup& setup, std::string_view dispatcher) {
  require<Unsupported>(setup.equal, "dispatcher {}: blocks are of unequal sizes, expected a capacity factor",
                       dispatcher);
  const int node = setup.rank / setup.ranks_per_node, ep_rank = setup.ep.rank();
  Hierarchy h{.node = nullptr, .across = nullptr, .most_bytes = setup.most_bytes};
  h.node = setup.ep.split(node, ep_rank);
  // The split joins ranks with as many peers on their node. Unless these are all, every rank of the group knows.
  const int alike = setup.ep.split(h.per_node(), ep_rank)->size();
  require<Unsupported>(alike == setup.ep.size(),
                       "dispatcher {}: {} of the {} ranks of rank {}'s EP group are on node {}, expected as many on "
                       "every node",
                       dispatcher, h.per_node(), setup.ep.size(), setup.rank, node);
  h.across = setup.ep.split(h.node->rank(), ep_rank);
  return h;
}

void transpose_blocks(Stream& stream, MemorySpace& memory, const BlockGrid& grid, const void* from, void* to) {
  const auto* in = static_cast<const std::byte*>(from);
  auto* out = static_cast<std::byte*>(to);
  stream.launch([&memory, grid, in, out](void* native) {
    if (grid.bytes == 0) return;
    for (int row = 0; row < grid.rows; ++row)
      for (int column = 0; column < grid.columns; ++column)
        memory.copy(in + (row * grid.columns + column) * grid.bytes, out + (column * grid.rows + row) * grid.bytes,
                    grid.bytes, native);
  });
}

}  // namespace moe
