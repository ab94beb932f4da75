#include "moe/comm/local/local_offer.h"

#include <array>
#include <fmt/format.h>

namespace moe {
namespace {

constexpr std::array<std::string_view, 12> kNames{"alltoall",      "alltoallv",      "allgather", "allgatherv",
                                                  "reducescatter", "reducescatterv", "allreduce", "broadcast",
                                                  "barrier",       "send",           "receive",   "split"};

bool sums(LocalOp op) {
  return op == LocalOp::reducescatter || op == LocalOp::reducescatterv || op == LocalOp::allreduce;
}

/// What both bring of the first field that must be equal and isn't.
struct Difference {
  std::string ours, theirs;
};

Difference difference(const LocalOffer& ours, const LocalOffer& theirs) {
  const bool pair = ours.op == LocalOp::send && theirs.op == LocalOp::receive;
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

std::string unequal_block(const std::vector<const LocalOffer*>& offers, const std::vector<int>& names) {
  for (size_t from = 0; from < offers.size(); ++from) {
    for (size_t to = 0; to < offers.size(); ++to) {
      const int64_t sent = offers[from]->send_bytes[to], expected = offers[to]->receive_bytes[from];
      if (sent == expected) continue;
      return fmt::format("rank {} in {} sends {} bytes to rank {}, which in {} expects {} bytes", names[from],
                         describe(*offers[from]), sent, names[to], describe(*offers[to]), expected);
    }
  }
  return {};
}

}  // namespace

std::string_view name_of(LocalOp op) { return kNames[static_cast<size_t>(op)]; }

std::string describe(const LocalOffer& offer) {
  if (offer.task.empty()) return std::string(name_of(offer.op));
  return fmt::format("'{}' ({})", offer.task, name_of(offer.op));
}

std::string disagreement(const std::vector<const LocalOffer*>& offers, const std::vector<int>& names) {
  for (size_t i = 1; i < offers.size(); ++i) {
    const auto [ours, theirs] = difference(*offers[0], *offers[i]);
    if (ours.empty()) continue;
    return fmt::format("rank {} in {} and rank {} in {} disagree: {} against {}", names[0], describe(*offers[0]),
                       names[i], describe(*offers[i]), ours, theirs);
  }
  return offers[0]->op == LocalOp::alltoallv ? unequal_block(offers, names) : std::string();
}

}  // namespace moe
