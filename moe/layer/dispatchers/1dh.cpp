#include "moe/layer/dispatchers/1dh.h"

#include "moe/layer/dispatchers/hierarchy.h"

namespace moe {
namespace {

class OneDimensional final : public Dispatcher {
 public:
  explicit OneDimensional(const DispatcherSetup& setup)
      : ep_(setup.ep), memory_(setup.memory), ranks_(split_by_node(setup, "1dh")) {
    if (ranks_.flat() || !leads()) return;
    for (Memory* buffer : {&one_, &other_}) *buffer = memory_.allocate(setup.most_bytes * ranks_.per_node());
  }

  void exchange(const Blocks& b, CommCall call) override {
    const int64_t block = ranks_.block_of(b);
    if (ranks_.flat()) return ep_.alltoall(b.send, b.receive, block, call);
    const int64_t whole = block * ep_.size();
    const std::vector<int64_t> own = to_leader(whole), all = of_node(whole);
    ranks_.node->alltoallv(b.send, own, one_.data(), all, unpaced(call));
    if (leads()) exchange_nodes(block, call);
    ranks_.node->alltoallv(other_.data(), all, b.receive, own, unpaced(call));
  }

 private:
  bool leads() const { return ranks_.node->rank() == 0; }
  /// Counts what goes to the leader, by rank of the node: what the leader gets.
  std::vector<int64_t> to_leader(int64_t bytes) const {
    std::vector<int64_t> blocks(static_cast<size_t>(ranks_.per_node()));
    blocks.front() = bytes;
    return blocks;
  }
  std::vector<int64_t> of_node(int64_t bytes) const {
    return std::vector<int64_t>(static_cast<size_t>(ranks_.per_node()), leads() ? bytes : 0);
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
  Memory one_, other_;  // the leader's
};

}  // namespace

std::unique_ptr<Dispatcher> make_1dh_dispatcher(const DispatcherSetup& setup) {
  return std::make_unique<OneDimensional>(setup);
}

}  // namespace moe
