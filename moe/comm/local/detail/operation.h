#pragma once
// One rank's arguments to an operation between ranks of one process.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/units.h"
#include "moe/device/stream.h"

namespace moe::local {

// clang-format off
enum class Op {
  alltoall, alltoallv, allgather, allgatherv, reducescatter, reducescatterv, allreduce, broadcast, barrier, send,
  receive, split
};
// clang-format on
std::string_view name_of(Op op);

struct Operation {
  Op op = Op::barrier;
  std::string_view task = {};
  const void* send = nullptr;
  void* receive = nullptr;
  int64_t count = 0;  // bytes (elements in sums) of a block; in allreduce and broadcast, of the buffer
  DType dtype = DType::float32;
  int root = 0;
  std::vector<int64_t> send_bytes = {}, receive_bytes = {};  // bytes per block, for alltoallv
  std::vector<int64_t> blocks = {};  // bytes per block in allgatherv, elements in reducescatterv
  int colour = 0, key = 0;           // arguments of split
  Pace pace = {};
  double began_s = 0;
  bool paced = false;  // began_s comes from paces (moe/device/cpu/pace_clock.h)
};

/// The members' operations, by member.
using Operations = std::vector<const Operation*>;

/// Returns "'forward dispatch 1/2 of layer 0' (alltoall)", or "alltoall" if the task has no name.
std::string describe(const Operation& operation);

/// Returns an empty text if the members' operations match, else a line that names two ranks, their tasks and the two
/// values. `names[i]` is the world rank of member i. In a pair of send and receive, the sender is member 0.
std::string disagreement(const Operations& operations, const std::vector<int>& names);

/// Returns the copies and sums by which `rank` receives its part from its peers' buffers; in an allreduce each rank
/// sums its share and writes it to all. A rank writes only where no other rank writes or reads during the operation, so
/// that the ranks need no order among themselves.
Moves moves_of(const Operations& operations, int rank);

}  // namespace moe::local
