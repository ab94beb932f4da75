#include "moe/layer/dispatchers/dispatcher.h"

#include <array>

#include "moe/base/registry.h"
#include "moe/layer/dispatchers/1dh.h"
#include "moe/layer/dispatchers/2dh.h"
#include "moe/layer/dispatchers/alltoall.h"

namespace moe {
namespace {

constexpr std::array kDispatchers{DispatcherRow{"alltoall", make_alltoall_dispatcher},
                                  DispatcherRow{"1dh", make_1dh_dispatcher}, DispatcherRow{"2dh", make_2dh_dispatcher}};

}  // namespace

std::unique_ptr<Dispatcher> make_dispatcher(std::string_view name, const DispatcherSetup& setup) {
  return find_named(kDispatchers, name, "dispatcher").make(setup);
}

std::vector<std::string_view> dispatcher_names() {
  std::vector<std::string_view> names;
  for (const DispatcherRow& row : kDispatchers) names.push_back(row.name);
  return names;
}

}  // namespace moe
