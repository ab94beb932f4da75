#include "moe/layer/dispatchers/hierarchical.h"

#include "moe/base/check.h"

namespace moe {

int64_t Hierarchy::block_of(const Blocks& blocks) const {
  const int64_t block = blocks.send_bytes.front();
  require<WrongResult>(block * per_node() * nodes() <= max_bytes, "{} blocks of {} bytes, expected at most {} in all",
                       per_node() * nodes(), block, max_bytes);
  return block;
}

Hierarchy split_by_node(const DispatcherSetup& setup, std::string_view dispatcher) {
  require<Unsupported>(setup.equal, "dispatcher {}: blocks are of unequal sizes, expected a capacity factor",
                       dispatcher);
  const int node = setup.rank / setup.ranks_per_node, ep_rank = setup.ep.rank();
  Hierarchy h{.node = nullptr, .across = nullptr, .max_bytes = setup.max_bytes};
  h.node = setup.ep.split(node, ep_rank);
  // The split joins ranks that have equally many peers on their node. If it joins too few, every rank of the group sees
  // it.
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

namespace {

class OneDimensional final : public Dispatcher {
 public:
  explicit OneDimensional(const DispatcherSetup& setup)
      : ep_(setup.ep), memory_(setup.memory), ranks_(split_by_node(setup, "1dh")) {
    if (ranks_.flat() || !is_leader()) return;
    for (Memory* buffer : {&one_, &other_}) *buffer = memory_.allocate(setup.max_bytes * ranks_.per_node());
  }

  void exchange(const Blocks& b, CommCall call) override {
    const int64_t block = ranks_.block_of(b);
    if (ranks_.flat()) return ep_.alltoall(b.send, b.receive, block, call);
    const int64_t whole = block * ep_.size();
    const std::vector<int64_t> own = leader_blocks(whole), all = node_blocks(whole);
    ranks_.node->alltoallv(b.send, own, one_.data(), all, unpaced(call));
    if (is_leader()) exchange_nodes(block, call);
    ranks_.node->alltoallv(other_.data(), all, b.receive, own, unpaced(call));
  }

 private:
  bool is_leader() const { return ranks_.node->rank() == 0; }
  /// Returns the bytes that go to each rank of the node: all to the leader.
  std::vector<int64_t> leader_blocks(int64_t bytes) const {
    std::vector<int64_t> blocks(ranks_.per_node());
    blocks.front() = bytes;
    return blocks;
  }
  std::vector<int64_t> node_blocks(int64_t bytes) const {
    return std::vector<int64_t>(static_cast<size_t>(ranks_.per_node()), is_leader() ? bytes : 0);
  }

  void exchange_nodes(int64_t block, CommCall call) {
    const int nodes = ranks_.nodes(), per_node = ranks_.per_node();
    // [source][node of the destination][position] -> [node][source][position]
    transpose_blocks(call.stream, memory_, {per_node, nodes, per_node * block}, one_.data(), other_.data());
    ranks_.across->alltoall(other_.data(), one_.data(), per_node * per_node * block, call);
    // [node of the source][source][position] -> [position][node][source]
    transpose_blocks(call.stream, memory_, {ep_.size(), per_node, block}, one_.data(), other_.data());
  }

  Communicator& ep_;
  MemorySpace& memory_;
  Hierarchy ranks_;
  Memory one_, other_;  // buffers of the leader
};

}  // namespace

std::unique_ptr<Dispatcher> make_1dh_dispatcher(const DispatcherSetup& setup) {
  return std::make_unique<OneDimensional>(setup);
}

namespace {

class TwoDimensional final : public Dispatcher {
 public:
  explicit TwoDimensional(const DispatcherSetup& setup)
      : ep_(setup.ep), memory_(setup.memory), ranks_(split_by_node(setup, "2dh")) {
    if (ranks_.flat()) return;
    for (Memory* buffer : {&packed_, &received_}) *buffer = memory_.allocate(setup.max_bytes);
  }

  void exchange(const Blocks& b, CommCall call) override {
    const int64_t block = ranks_.block_of(b);
    if (ranks_.flat()) return ep_.alltoall(b.send, b.receive, block, call);
    const int nodes = ranks_.nodes(), per_node = ranks_.per_node();
    // Blocks change their order by destination: [node][position] -> [position][node].
    transpose_blocks(call.stream, memory_, {nodes, per_node, block}, b.send, packed_.data());
    ranks_.node->alltoall(packed_.data(), received_.data(), nodes * block, unpaced(call));
    // [position of the source][node of the destination] -> [node][position]
    transpose_blocks(call.stream, memory_, {per_node, nodes, block}, received_.data(), packed_.data());
    ranks_.across->alltoall(packed_.data(), b.receive, per_node * block, call);
  }

 private:
  Communicator& ep_;
  MemorySpace& memory_;
  Hierarchy ranks_;
  Memory packed_, received_;
};

}  // namespace

std::unique_ptr<Dispatcher> make_2dh_dispatcher(const DispatcherSetup& setup) {
  return std::make_unique<TwoDimensional>(setup);
}

}  // namespace moe
