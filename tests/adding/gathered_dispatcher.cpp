// For a network without AlltoAll: every rank gathers what all ranks send, and keeps what is for it. N times the bytes.
#include <cstring>

#include "moe/tensor/tensor.h"
#include "tests/adding/parts.h"

namespace moe {
namespace {

class GatheredDispatcher final : public Dispatcher {
 public:
  explicit GatheredDispatcher(const DispatcherSetup& setup)
      : ep_(setup.ep), gathered_({setup.max_bytes * setup.ep.size() / bytes_of(DType::float32)}, DType::float32) {
    require<Unsupported>(setup.equal, "dispatcher gathered: blocks of unequal size");
  }

  void exchange(const Blocks& blocks, CommCall call) override {
    const int64_t block = blocks.send_bytes.front(), peers = ep_.size();
    ep_.allgather(blocks.send, gathered_.view().data(), block * peers, call);
    auto* receive = static_cast<std::byte*>(blocks.receive);
    call.stream.launch([this, receive, block, peers](void*) {
      for (int64_t peer = 0; peer < peers; ++peer)
        std::memcpy(receive + peer * block, gathered_.view().as<std::byte>() + (peer * peers + ep_.rank()) * block,
                    static_cast<size_t>(block));
    });
  }

 private:
  Communicator& ep_;
  Tensor gathered_;  // [from][to] blocks
};

}  // namespace

std::unique_ptr<Dispatcher> make_gathered_dispatcher(const DispatcherSetup& setup) {
  return std::make_unique<GatheredDispatcher>(setup);
}

}  // namespace moe
