#pragma once
// The operations that plans hold, profiles price and benches time, with one row of facts each.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace moe {

/// Names an operation. Its volume is as FSMoE counts it, what a rank sends to itself included: of an alltoall what a
/// rank sends, of an allgather what it has gathered, of a reducescatter what it had before, of an allreduce the buffer,
/// of a sendrecv the message.
enum class Op : uint8_t {
  none,
  alltoall,
  allgather,
  reducescatter,
  allreduce,
  sendrecv,
  a2a_ep_esp,  // Parm's one alltoall over EP and ESP
  saa,         // Parm's combine with its gathers
  gemm,
  expert,
  copy,
  attention,
  module,
  task
};

/// Names the table of a cluster profile that holds an op's rows.
enum class OpTable : uint8_t { none, comm, compute, module, task };

struct OpFacts {
  std::string_view name;  // in profiles, records and messages
  OpTable table = OpTable::none;
  bool collective = false;  // every rank of a group takes part alike
  bool sums = false;        // adds elements up; the others move bytes as they are
  int wire_passes = 0;      // how often a collective's volume, less a rank's own share, passes the rank's link
};
const OpFacts& facts_of(Op op);

std::string_view name_of(Op op);
/// Returns the op of that name; none: there is no such op.
std::optional<Op> find_op(std::string_view name);
/// Returns the names of a table's ops, in the order of the enum.
std::vector<std::string_view> names_of(OpTable table);
std::vector<Op> collectives();

/// Returns the bytes that a rank's link carries for each byte of a collective's volume: nccl-tests' bus bandwidth over
/// its algorithm bandwidth.
double wire_share(Op op, int ranks);

}  // namespace moe
