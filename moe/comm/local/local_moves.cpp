// What each operation does once all ranks' pointers are known. A rank writes only where no other rank writes or reads
// during the operation, so the ranks need no order among themselves.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>

#include "moe/comm/local/local_offer.h"
#include "moe/comm/sum.h"

namespace moe {
namespace {

using Offers = std::vector<const LocalOffer*>;

const std::byte* sent(const LocalOffer& offer, int64_t at) { return static_cast<const std::byte*>(offer.send) + at; }
std::byte* received(const LocalOffer& offer, int64_t at) { return static_cast<std::byte*>(offer.receive) + at; }

// memcpy forbids null pointers even for no bytes.
void copy(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void alltoall(const Offers& offers, int rank) {
  const LocalOffer& ours = *offers[static_cast<size_t>(rank)];
  int64_t at = 0;
  for (const LocalOffer* peer : offers) {
    copy(received(ours, at), sent(*peer, rank * ours.count), ours.count);
    at += ours.count;
  }
}

void alltoallv(const Offers& offers, int rank) {
  const LocalOffer& ours = *offers[static_cast<size_t>(rank)];
  int64_t at = 0;
  for (size_t from = 0; from < offers.size(); ++from) {
    const auto& sizes = offers[from]->send_bytes;
    const int64_t before = std::accumulate(sizes.begin(), sizes.begin() + rank, int64_t{0});
    copy(received(ours, at), sent(*offers[from], before), ours.receive_bytes[from]);
    at += ours.receive_bytes[from];
  }
}

void allgather(const Offers& offers, int rank) {
  const LocalOffer& ours = *offers[static_cast<size_t>(rank)];
  int64_t at = 0;
  for (const LocalOffer* peer : offers) {
    copy(received(ours, at), sent(*peer, 0), ours.count);
    at += ours.count;
  }
}

void allgatherv(const Offers& offers, int rank) {
  const LocalOffer& ours = *offers[static_cast<size_t>(rank)];
  int64_t at = 0;
  for (size_t from = 0; from < offers.size(); at += ours.blocks[from++])
    copy(received(ours, at), sent(*offers[from], 0), ours.blocks[from]);
}

/// Sums elements [begin, end) of all ranks' `send` in rank order and hands each piece to store(piece, begin, count).
template <class T, class Store>
void sum(const Offers& offers, int64_t begin, int64_t end, Store&& store) {
  const auto sent_by = [&](int rank) { return static_cast<const T*>(offers[static_cast<size_t>(rank)]->send); };
  sum_in_order<T>(static_cast<int>(offers.size()), sent_by, begin, end, store);
}

template <class T>
void sum_block(const Offers& offers, int rank, int64_t begin, int64_t elements) {
  T* to = static_cast<T*>(offers[static_cast<size_t>(rank)]->receive);
  sum<T>(offers, begin, begin + elements,
         [&](const T* piece, int64_t at, int64_t count) { std::copy_n(piece, count, to + (at - begin)); });
}

template <class T>
void reducescatter(const Offers& offers, int rank) {
  const int64_t block = offers[static_cast<size_t>(rank)]->count;
  sum_block<T>(offers, rank, rank * block, block);
}

template <class T>
void reducescatterv(const Offers& offers, int rank) {
  const auto& blocks = offers[static_cast<size_t>(rank)]->blocks;
  const int64_t before = std::accumulate(blocks.begin(), blocks.begin() + rank, int64_t{0});
  sum_block<T>(offers, rank, before, blocks[static_cast<size_t>(rank)]);
}

template <class T>
void allreduce(const Offers& offers, int rank) {
  const auto ranks = static_cast<int64_t>(offers.size());
  const int64_t elements = offers[static_cast<size_t>(rank)]->count;
  sum<T>(offers, elements * rank / ranks, elements * (rank + 1) / ranks,
         [&](const T* piece, int64_t at, int64_t count) {
           for (const LocalOffer* peer : offers) std::copy_n(piece, count, static_cast<T*>(peer->receive) + at);
         });
}

}  // namespace

void move_data(const Offers& offers, int rank) {
  const LocalOffer& ours = *offers[static_cast<size_t>(rank)];
  const bool wide = ours.dtype == DType::float64;
  switch (ours.op) {
    case LocalOp::alltoall:
      return alltoall(offers, rank);
    case LocalOp::alltoallv:
      return alltoallv(offers, rank);
    case LocalOp::allgather:
      return allgather(offers, rank);
    case LocalOp::allgatherv:
      return allgatherv(offers, rank);
    case LocalOp::reducescatterv:
      return wide ? reducescatterv<double>(offers, rank) : reducescatterv<float>(offers, rank);
    case LocalOp::reducescatter:
      return wide ? reducescatter<double>(offers, rank) : reducescatter<float>(offers, rank);
    case LocalOp::allreduce:
      return wide ? allreduce<double>(offers, rank) : allreduce<float>(offers, rank);
    case LocalOp::broadcast:
      return copy(received(ours, 0), sent(*offers[static_cast<size_t>(ours.root)], 0), ours.count);
    case LocalOp::receive:
      return copy(received(ours, 0), sent(*offers.front(), 0), ours.count);
    case LocalOp::send:
    case LocalOp::barrier:
    case LocalOp::split:
      return;
  }
}

}  // namespace moe
