#pragma once
// The operations that plans contain, profiles price and benchmarks time, with one row of properties each.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace moe {

/// An operation. Volumes are as in FSMoE, including the part that a rank sends to itself: for an alltoall, the bytes
/// that a rank sends; for an allgather, the gathered bytes; for a reducescatter, the input bytes; for an allreduce, the
/// buffer; for a sendrecv, the message.
enum class Op : uint8_t {
  none,
  alltoall,
  allgather,
  reducescatter,
  allreduce,
  sendrecv,
  a2a_ep_esp,  // Parm's single alltoall over EP and ESP
  saa,         // Parm's combine overlapped with its gathers
  gemm,
  expert,
  copy,       // inside the device's memory
  host_copy,  // between the host's memory and the device's
  attention,
  module,
  task
};

/// The table of a cluster profile that contains an op's rows.
enum class OpTable : uint8_t { none, comm, compute, module, task };

struct OpFacts {
  std::string_view name;  // name in profiles, records and messages
  OpTable table = OpTable::none;
  bool collective = false;  // all ranks of a group take part in the same way
  bool sums = false;        // sums elements; the other ops move bytes unchanged
  int wire_passes = 0;      // how often a collective's volume, without a rank's own share, passes the rank's link
};
const OpFacts& facts_of(Op op);

/// Returns whether the op moves bytes of one rank; a row of it has no element type.
constexpr bool copies(Op op) { return op == Op::copy || op == Op::host_copy; }

std::string_view name_of(Op op);
/// Returns the op of that name; none if there is no such op.
std::optional<Op> find_op(std::string_view name);
/// Returns the names of a table's ops, in the order of the enum.
std::vector<std::string_view> names_of(OpTable table);
std::vector<Op> collectives();

/// Returns the bytes that a rank's link carries per byte of a collective's volume: the bus bandwidth of nccl-tests over
/// its algorithm bandwidth.
double wire_share(Op op, int ranks);

}  // namespace moe
