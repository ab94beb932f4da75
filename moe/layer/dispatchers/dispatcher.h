#pragma once
// A dispatcher sends rows to the ranks that hold their experts, and back. A new one derives from Dispatcher and has a
// row in dispatcher.cpp, and its name and summary in moe/shape/parts.h.
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "moe/comm/communicator.h"
#include "moe/device/memory.h"
#include "moe/shape/parts.h"

namespace moe {

/// The blocks of an exchange, packed one after the other, and the number of bytes to and from each EP peer.
struct Blocks {
  const void* send = nullptr;
  std::span<const int64_t> send_bytes;
  void* receive = nullptr;
  std::span<const int64_t> receive_bytes;
};

class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  /// Sends block i of `send` to EP peer i and gets block i of `receive` from it. Enqueues on the call's stream; the
  /// spans need not outlive the call. Combine, and both backwards, are the same exchange.
  virtual void exchange(const Blocks& blocks, CommCall call) = 0;
};

struct DispatcherSetup {
  Communicator& ep;  // the EP group
  int ranks_per_node = 1;
  int rank = 0;                        // this rank in the stage; its node is rank / ranks_per_node
  bool equal = true;                   // true if all blocks of all ranks have the same size; false if dropless
  int64_t max_bytes = 0;               // most bytes that one exchange sends or receives, if blocks are equal
  MemorySpace& memory = cpu_memory();  // memory of the blocks; outlives the dispatcher
};

struct DispatcherRow {
  std::string_view name = {};
  /// Makes the dispatcher. Blocking; all ranks of the EP group call it. Throws Unsupported for unequal blocks if the
  /// dispatcher can't send them.
  std::unique_ptr<Dispatcher> (*make)(const DispatcherSetup&);
};

/// Registers a dispatcher, as register_gate() does a gate.
void register_dispatcher(const Part& part, DispatcherRow row);
/// Makes the dispatcher of that name. Throws BadInput listing the known names.
std::unique_ptr<Dispatcher> make_dispatcher(std::string_view name, const DispatcherSetup& setup);
/// Returns "alltoall", ...
std::vector<std::string_view> dispatcher_names();

// The plain dispatcher: one AlltoAll over the EP group.

std::unique_ptr<Dispatcher> make_alltoall_dispatcher(const DispatcherSetup& setup);

}  // namespace moe
