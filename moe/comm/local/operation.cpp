#include "moe/comm/local/detail/operation.h"

#include <fmt/format.h>

#include "moe/base/enum_array.h"

namespace moe::local {
namespace {

constexpr EnumArray<Op, std::string_view, 12> kNames{"alltoall",      "alltoallv",      "allgather", "allgatherv",
                                                     "reducescatter", "reducescatterv", "allreduce", "broadcast",
                                                     "barrier",       "send",           "receive",   "split"};

bool sums(Op op) { return op == Op::reducescatter || op == Op::reducescatterv || op == Op::allreduce; }

/// The two values of the first field that must be equal but differs; empty if there is none.
struct Difference {
  std::string ours, theirs;
};

Difference difference(const Operation& ours, const Operation& theirs) {
  const bool pair = ours.op == Op::send && theirs.op == Op::receive;
  if (ours.op != theirs.op && !pair) return {std::string(name_of(ours.op)), std::string(name_of(theirs.op))};
  if (sums(ours.op) && ours.dtype != theirs.dtype)
    return {std::string(name_of(ours.dtype)), std::string(name_of(theirs.dtype))};
  if (ours.count != theirs.count) {
    const std::string_view unit = sums(ours.op) ? "elements" : "bytes";
    return {fmt::format("{} {}", ours.count, unit), fmt::format("{} {}", theirs.count, unit)};
  }
  for (size_t i = 0; i < ours.blocks.size(); ++i)
    if (ours.blocks[i] != theirs.blocks[i])
      return {fmt::format("a block {} of {}", i, ours.blocks[i]), fmt::format("{}", theirs.blocks[i])};
  if (ours.root != theirs.root) return {fmt::format("root {}", ours.root), fmt::format("root {}", theirs.root)};
  return {};
}

std::string unequal_block(const Operations& operations, const std::vector<int>& names) {
  for (size_t from = 0; from < operations.size(); ++from) {
    for (size_t to = 0; to < operations.size(); ++to) {
      const int64_t sent = operations[from]->send_bytes[to], expected = operations[to]->receive_bytes[from];
      if (sent == expected) continue;
      return fmt::format("rank {} in {} sends {} bytes to rank {}, which in {} expects {} bytes", names[from],
                         describe(*operations[from]), sent, names[to], describe(*operations[to]), expected);
    }
  }
  return {};
}

}  // namespace

std::string_view name_of(Op op) { return kNames[op]; }

std::string describe(const Operation& operation) {
  if (operation.task.empty()) return std::string(name_of(operation.op));
  return fmt::format("'{}' ({})", operation.task, name_of(operation.op));
}

std::string disagreement(const Operations& operations, const std::vector<int>& names) {
  for (size_t i = 1; i < operations.size(); ++i) {
    const auto [ours, theirs] = difference(*operations[0], *operations[i]);
    if (ours.empty()) continue;
    return fmt::format("rank {} in {} and rank {} in {} disagree: {} against {}", names[0], describe(*operations[0]),
                       names[i], describe(*operations[i]), ours, theirs);
  }
  return operations[0]->op == Op::alltoallv ? unequal_block(operations, names) : std::string();
}

}  // namespace moe::local
