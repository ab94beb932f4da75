// What each operation moves once all ranks' pointers are known.
#include <cstddef>
#include <numeric>

#include "moe/comm/local/local_offer.h"

namespace moe {
namespace {

using Offers = std::vector<const LocalOffer*>;

// Of shares of a sum, so that each starts where vectors of every element type may.
constexpr int64_t kShareStep = 64;

const std::byte* sent(const LocalOffer& offer, int64_t at) { return static_cast<const std::byte*>(offer.send) + at; }
std::byte* received(const LocalOffer& offer, int64_t at) { return static_cast<std::byte*>(offer.receive) + at; }

int64_t sum_of_first(const std::vector<int64_t>& sizes, int count) {
  return std::accumulate(sizes.begin(), sizes.begin() + count, int64_t{0});
}

/// One block from each rank, packed in rank order: from(peer) is where that starts, bytes(peer) its size.
template <class From, class Bytes>
Moves collect(const Offers& offers, int rank, From&& from, Bytes&& bytes) {
  Moves moves;
  int64_t at = 0;
  for (size_t peer = 0; peer < offers.size(); at += bytes(peer++))
    moves.copies.push_back({received(*offers[static_cast<size_t>(rank)], at), from(peer), bytes(peer)});
  return moves;
}

Moves alltoallv(const Offers& offers, int rank) {
  const auto from = [&](size_t peer) { return sent(*offers[peer], sum_of_first(offers[peer]->send_bytes, rank)); };
  return collect(offers, rank, from,
                 [&](size_t peer) { return offers[static_cast<size_t>(rank)]->receive_bytes[peer]; });
}

/// `elements` from element `begin` on of every rank's `send`.
Sum sum_of(const Offers& offers, int64_t begin, int64_t elements, DType dtype) {
  Sum sum{.from = {}, .to = {}, .elements = elements, .dtype = dtype};
  for (const LocalOffer* peer : offers) sum.from.push_back(sent(*peer, begin * bytes_of(dtype)));
  return sum;
}

Moves reduce_block(const Offers& offers, int rank, int64_t begin, int64_t elements) {
  const LocalOffer& ours = *offers[static_cast<size_t>(rank)];
  Moves moves{.copies = {}, .sum = sum_of(offers, begin, elements, ours.dtype)};
  moves.sum.to.push_back(ours.receive);
  return moves;
}

Moves allreduce(const Offers& offers, int rank) {
  const LocalOffer& ours = *offers[static_cast<size_t>(rank)];
  const auto ranks = static_cast<int64_t>(offers.size());
  const auto share = [&](int64_t of) {
    return of == ranks ? ours.count : ours.count * of / ranks / kShareStep * kShareStep;
  };
  const int64_t begin = share(rank);
  Moves moves{.copies = {}, .sum = sum_of(offers, begin, share(rank + 1) - begin, ours.dtype)};
  for (const LocalOffer* peer : offers) moves.sum.to.push_back(received(*peer, begin * bytes_of(ours.dtype)));
  return moves;
}

}  // namespace

Moves moves_of(const Offers& offers, int rank) {
  const LocalOffer& ours = *offers[static_cast<size_t>(rank)];
  switch (ours.op) {
    case LocalOp::alltoall:
      return collect(
          offers, rank, [&](size_t peer) { return sent(*offers[peer], rank * ours.count); },
          [&](size_t) { return ours.count; });
    case LocalOp::alltoallv:
      return alltoallv(offers, rank);
    case LocalOp::allgather:
      return collect(
          offers, rank, [&](size_t peer) { return sent(*offers[peer], 0); }, [&](size_t) { return ours.count; });
    case LocalOp::allgatherv:
      return collect(
          offers, rank, [&](size_t peer) { return sent(*offers[peer], 0); },
          [&](size_t peer) { return ours.blocks[peer]; });
    case LocalOp::reducescatter:
      return reduce_block(offers, rank, rank * ours.count, ours.count);
    case LocalOp::reducescatterv:
      return reduce_block(offers, rank, sum_of_first(ours.blocks, rank), ours.blocks[static_cast<size_t>(rank)]);
    case LocalOp::allreduce:
      return allreduce(offers, rank);
    case LocalOp::broadcast:
      return {.copies = {{received(ours, 0), sent(*offers[static_cast<size_t>(ours.root)], 0), ours.count}}, .sum = {}};
    case LocalOp::receive:
      return {.copies = {{received(ours, 0), sent(*offers.front(), 0), ours.count}}, .sum = {}};
    case LocalOp::send:
    case LocalOp::barrier:
    case LocalOp::split:
      return {};
  }
  return {};
}

}  // namespace moe
