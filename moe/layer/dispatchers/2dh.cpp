#include "moe/layer/dispatchers/2dh.h"

#include "moe/layer/dispatchers/hierarchy.h"

namespace moe {
namespace {

class TwoDimensional final : public Dispatcher {
 public:
  explicit TwoDimensional(const DispatcherSetup& setup)
      : ep_(setup.ep), memory_(setup.memory), ranks_(split_by_node(setup, "2dh")) {
    if (ranks_.flat()) return;
    for (Memory* buffer : {&packed_, &received_}) *buffer = memory_.allocate(setup.most_bytes);
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
