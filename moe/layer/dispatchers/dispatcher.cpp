#include "moe/layer/dispatchers/dispatcher.h"

#include <array>

#include "moe/base/registry.h"
#include "moe/layer/dispatchers/hierarchical.h"
#include "moe/shape/parts.h"

namespace moe {
namespace {

constexpr std::array kDispatchers{DispatcherRow{"alltoall", make_alltoall_dispatcher},
                                  DispatcherRow{"1dh", make_1dh_dispatcher}, DispatcherRow{"2dh", make_2dh_dispatcher}};
static_assert(same_names(kDispatchers, kDispatcherParts), "a dispatcher has a row here and one in moe/shape/parts.h");

Registry<DispatcherRow>& dispatchers() {
  static Registry<DispatcherRow> rows(kDispatchers);
  return rows;
}

}  // namespace

void register_dispatcher(const Part& part, DispatcherRow row) {
  row.name = part.name;
  dispatcher_parts().add(part, "dispatcher");
  dispatchers().add(row, "dispatcher");
}

std::unique_ptr<Dispatcher> make_dispatcher(std::string_view name, const DispatcherSetup& setup) {
  return find_named(dispatchers(), name, "dispatcher").make(setup);
}

std::vector<std::string_view> dispatcher_names() { return row_names(dispatchers()); }

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
