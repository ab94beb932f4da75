#include "moe/layer/dispatchers/dispatcher.h"

#include <array>

#include "moe/base/registry.h"
#include "moe/layer/dispatchers/1dh.h"
#include "moe/layer/dispatchers/2dh.h"
#include "moe/layer/dispatchers/alltoall.h"
#include "moe/plan/parts.h"

namespace moe {
namespace {

constexpr std::array kDispatchers{DispatcherRow{"alltoall", make_alltoall_dispatcher},
                                  DispatcherRow{"1dh", make_1dh_dispatcher}, DispatcherRow{"2dh", make_2dh_dispatcher}};
static_assert(same_names(kDispatchers, kDispatcherParts), "a dispatcher has a row here and one in moe/plan/parts.h");

}  // namespace

std::unique_ptr<Dispatcher> make_dispatcher(std::string_view name, const DispatcherSetup& setup) {
  return find_named(kDispatchers, name, "dispatcher").make(setup);
}

std::vector<std::string_view> dispatcher_names() { return row_names(kDispatchers); }

}  // namespace moe
