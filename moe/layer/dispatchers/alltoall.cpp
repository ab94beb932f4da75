#include "moe/layer/dispatchers/alltoall.h"

namespace moe {
namespace {

class AlltoallDispatcher final : public Dispatcher {
 public:
  explicit AlltoallDispatcher(const DispatcherSetup& setup) : ep_(setup.ep), equal_(setup.equal) {}
  void exchange(const Blocks& b, CommCall call) override {
    if (equal_) return ep_.alltoall(b.send, b.receive, b.send_bytes.front(), call);
    ep_.alltoallv(b.send, {b.send_bytes.begin(), b.send_bytes.end()}, b.receive,
                  {b.receive_bytes.begin(), b.receive_bytes.end()}, call);
  }

 private:
  Communicator& ep_;
  bool equal_;
};

}  // namespace

std::unique_ptr<Dispatcher> make_alltoall_dispatcher(const DispatcherSetup& setup) {
  return std::make_unique<AlltoallDispatcher>(setup);
}

}  // namespace moe
