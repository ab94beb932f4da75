#include "moe/layer/dispatchers/alltoall.h"

namespace moe {
namespace {

class AlltoallDispatcher final : public Dispatcher {
 public:
  explicit AlltoallDispatcher(Communicator& ep) : ep_(ep) {}
  void exchange(const void* send, void* receive, int64_t block_bytes, CommCall call) override {
    ep_.alltoall(send, receive, block_bytes, call);
  }

 private:
  Communicator& ep_;
};

}  // namespace

std::unique_ptr<Dispatcher> make_alltoall_dispatcher(Communicator& ep) {
  return std::make_unique<AlltoallDispatcher>(ep);
}

}  // namespace moe
