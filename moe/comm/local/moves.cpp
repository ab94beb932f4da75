// Finds the copies and sums of each operation once all ranks' pointers are known.
#include <cstddef>
#include <numeric>

#include "moe/comm/local/detail/operation.h"

namespace moe::local {
namespace {

// Elements: shares of a sum begin at multiples of this, so that they are aligned for vector instructions.
constexpr int64_t kShareStep = 64;

const std::byte* sent(const Operation& operation, int64_t at) {
  return static_cast<const std::byte*>(operation.send) + at;
}
std::byte* received(const Operation& operation, int64_t at) { return static_cast<std::byte*>(operation.receive) + at; }

int64_t sum_of_first(const std::vector<int64_t>& sizes, int count) {
  return std::accumulate(sizes.begin(), sizes.begin() + count, int64_t{0});
}

/// Copies one block from each rank, packed in rank order: from(peer) is its start, bytes(peer) its size.
template <class From, class Bytes>
Moves collect(const Operations& operations, int rank, From&& from, Bytes&& bytes) {
  Moves moves;
  int64_t at = 0;
  for (size_t peer = 0; peer < operations.size(); at += bytes(peer++))
    moves.copies.push_back({received(*operations[rank], at), from(peer), bytes(peer)});
  return moves;
}

Moves alltoallv(const Operations& operations, int rank) {
  const auto from = [&](size_t peer) {
    return sent(*operations[peer], sum_of_first(operations[peer]->send_bytes, rank));
  };
  return collect(operations, rank, from, [&](size_t peer) { return operations[rank]->receive_bytes[peer]; });
}

/// Sums `elements` of every rank's `send`, from element `begin` on.
Sum sum_of(const Operations& operations, int64_t begin, int64_t elements, DType dtype) {
  Sum sum{.from = {}, .to = {}, .elements = elements, .dtype = dtype};
  for (const Operation* peer : operations) sum.from.push_back(sent(*peer, begin * bytes_of(dtype)));
  return sum;
}

Moves reduce_block(const Operations& operations, int rank, int64_t begin, int64_t elements) {
  const Operation& ours = *operations[rank];
  Moves moves{.copies = {}, .sum = sum_of(operations, begin, elements, ours.dtype)};
  moves.sum.to.push_back(ours.receive);
  return moves;
}

Moves allreduce(const Operations& operations, int rank) {
  const Operation& ours = *operations[rank];
  const auto ranks = static_cast<int64_t>(operations.size());
  const auto share = [&](int64_t of) {
    return of == ranks ? ours.count : ours.count * of / ranks / kShareStep * kShareStep;
  };
  const int64_t begin = share(rank);
  Moves moves{.copies = {}, .sum = sum_of(operations, begin, share(rank + 1) - begin, ours.dtype)};
  for (const Operation* peer : operations) moves.sum.to.push_back(received(*peer, begin * bytes_of(ours.dtype)));
  return moves;
}

}  // namespace

Moves moves_of(const Operations& operations, int rank) {
  const Operation& ours = *operations[rank];
  switch (ours.op) {
    case Op::alltoall:
      return collect(
          operations, rank, [&](size_t peer) { return sent(*operations[peer], rank * ours.count); },
          [&](size_t) { return ours.count; });
    case Op::alltoallv:
      return alltoallv(operations, rank);
    case Op::allgather:
      return collect(
          operations, rank, [&](size_t peer) { return sent(*operations[peer], 0); },
          [&](size_t) { return ours.count; });
    case Op::allgatherv:
      return collect(
          operations, rank, [&](size_t peer) { return sent(*operations[peer], 0); },
          [&](size_t peer) { return ours.blocks[peer]; });
    case Op::reducescatter:
      return reduce_block(operations, rank, rank * ours.count, ours.count);
    case Op::reducescatterv:
      return reduce_block(operations, rank, sum_of_first(ours.blocks, rank), ours.blocks[rank]);
    case Op::allreduce:
      return allreduce(operations, rank);
    case Op::broadcast:
      return {.copies = {{received(ours, 0), sent(*operations[ours.root], 0), ours.count}}, .sum = {}};
    case Op::receive:
      return {.copies = {{received(ours, 0), sent(*operations.front(), 0), ours.count}}, .sum = {}};
    case Op::send:
    case Op::barrier:
    case Op::split:
      return {};
  }
  return {};
}

}  // namespace moe::local
