#pragma once
// The operations that plans contain, profiles price and benchmarks time, with one row of properties each.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace moe {

/// An operation. Its volume, as in FSMoE, includes what a rank sends to itself. alltoall: the bytes that a rank sends;
/// allgather: the gathered bytes; reducescatter: the input bytes; allreduce: the buffer; sendrecv: the message.
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

/// The table of a cluster profile with the prices of an op.
enum class OpTable : uint8_t { none, comm, compute, module, task };

struct OpFacts {
  std::string_view name;  // name in profiles, records and messages
  OpTable table = OpTable::none;
  bool collective = false;  // all ranks of a group take part in the same way
  bool sums = false;        // sums elements; the other ops move bytes unchanged
  int wire_passes = 0;  // times that a collective's volume, without the rank's own share, passes over the rank's link
};
const OpFacts& facts_of(Op op);

/// Returns whether the op moves bytes inside one rank. Its rows in a profile have no element type.
constexpr bool copies(Op op) { return op == Op::copy || op == Op::host_copy; }

std::string_view name_of(Op op);
/// Returns the op of that name; empty if no op has it.
std::optional<Op> find_op(std::string_view name);
/// Returns the names of a table's ops, in the order of the enum.
std::vector<std::string_view> names_of(OpTable table);
std::vector<Op> collectives();

/// Returns the number of bytes on a rank's link per byte of a collective's volume: the ratio of bus bandwidth to
/// algorithm bandwidth in nccl-tests.
double wire_share(Op op, int ranks);

}  // namespace moe
