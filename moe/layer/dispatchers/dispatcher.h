#pragma once
// A dispatcher sends rows to the ranks that hold their experts, and back. A new one: derive, and add a row to
// dispatcher.cpp.
#include <memory>
#include <string_view>
#include <vector>

#include "moe/comm/communicator.h"

namespace moe {

class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  /// Block i of `send` goes to EP peer i, block i of `receive` comes from it; each of `block_bytes`, possibly 0.
  /// Enqueues on the call's stream. Combine, and both backwards, are the same exchange.
  virtual void exchange(const void* send, void* receive, int64_t block_bytes, CommCall call) = 0;
};

struct DispatcherRow {
  std::string_view name;
  std::unique_ptr<Dispatcher> (*make)(Communicator& ep);
};

/// `ep` must outlive it. Throws BadInput listing the known names.
std::unique_ptr<Dispatcher> make_dispatcher(std::string_view name, Communicator& ep);
/// "alltoall", ...
std::vector<std::string_view> dispatcher_names();

}  // namespace moe
