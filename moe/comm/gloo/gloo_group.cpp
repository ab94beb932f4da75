#include "moe/comm/gloo/detail/gloo_group.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <utility>

#include "moe/device/sum.h"

namespace moe::gloo {
namespace {

const std::byte* at(const void* data, int64_t offset) { return static_cast<const std::byte*>(data) + offset; }
std::byte* at(void* data, int64_t offset) { return static_cast<std::byte*>(data) + offset; }

// memcpy forbids null pointers even for no bytes.
void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

int64_t offset_of_rank(const std::vector<int64_t>& blocks, int rank) {
  return std::accumulate(blocks.begin(), blocks.begin() + rank, int64_t{0});
}

}  // namespace

std::string name_operation(std::string_view op, std::string_view task) {
  return task.empty() ? std::string(op) : fmt::format("'{}' ({})", task, op);
}

Group::Group(std::string its_name, std::vector<int> world_ranks, int our_rank, std::unique_ptr<Mesh> mesh)
    : name(std::move(its_name)), ranks(std::move(world_ranks)), rank(our_rank), mesh_(std::move(mesh)) {}

void Group::add(bool send, int peer, const void* data, int64_t bytes) {
  if (bytes > 0) messages_.push_back({peer, send, const_cast<void*>(data), bytes});  // only read if it is sent
}

void Group::exchange(Op op) {
  Mesh::Result result;
  if (mesh_) result = mesh_->exchange(messages_, static_cast<int>(op));
  messages_.clear();
  if (result.end == Mesh::End::done) return;
  throw BrokenExchange{result.end, result.peer < 0 ? -1 : ranks[result.peer]};
}

// In step d, rank r sends to rank r + d, so no two ranks send to the same one at once.
void Group::alltoall(const void* send, const std::vector<int64_t>& send_bytes, void* receive,
                     const std::vector<int64_t>& receive_bytes) {
  copy(at(receive, offset_of_rank(receive_bytes, rank)), at(send, offset_of_rank(send_bytes, rank)), send_bytes[rank]);
  for (int distance = 1; distance < size(); ++distance) {
    const int from = (rank + size() - distance) % size(), to = (rank + distance) % size();
    add(false, from, at(receive, offset_of_rank(receive_bytes, from)), receive_bytes[from]);
    add(true, to, at(send, offset_of_rank(send_bytes, to)), send_bytes[to]);
  }
  exchange(Op::alltoall);
}

void Group::post_allgather(const std::byte* ours, std::byte* all, const std::vector<int64_t>& block_bytes) {
  for (int distance = 1; distance < size(); ++distance) {
    const int from = (rank + size() - distance) % size(), to = (rank + distance) % size();
    add(false, from, all + offset_of_rank(block_bytes, from), block_bytes[from]);
    add(true, to, ours, block_bytes[rank]);
  }
}

void Group::allgather(const void* send, void* receive, const std::vector<int64_t>& block_bytes) {
  std::byte* own = at(receive, offset_of_rank(block_bytes, rank));
  copy(own, send, block_bytes[rank]);
  post_allgather(own, at(receive, 0), block_bytes);
  exchange(Op::allgather);
}

/// Receives the others' data for our block side by side, then sums all in rank order. `receive` may be our block of
/// `send`.
template <class T>
void Group::sum_blocks(const T* send, T* receive, const std::vector<int64_t>& blocks, Op op) {
  const int64_t ours = blocks[rank], bytes = ours * int64_t{sizeof(T)};
  if (const int64_t needed = bytes * (size() - 1); scratch_bytes_ < needed) {
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(needed));
    scratch_bytes_ = needed;
  }
  const T* others = reinterpret_cast<const T*>(scratch_.get());
  const T* own = send + offset_of_rank(blocks, rank);
  const auto array = [&](int from) { return from == rank ? own : others + (from < rank ? from : from - 1) * ours; };
  for (int distance = 1; distance < size(); ++distance) {
    const int from = (rank + size() - distance) % size(), to = (rank + distance) % size();
    add(false, from, array(from), bytes);
    add(true, to, send + offset_of_rank(blocks, to), blocks[to] * int64_t{sizeof(T)});
  }
  exchange(op);
  sum_in_order<T>(size(), array, 0, ours,
                  [&](const T* piece, int64_t first, int64_t count) { std::copy_n(piece, count, receive + first); });
}

void Group::reducescatter(const void* send, void* receive, const std::vector<int64_t>& blocks, DType dtype) {
  with_number_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    sum_blocks(static_cast<const T*>(send), static_cast<T*>(receive), blocks, Op::reducescatter);
  });
}

void Group::allreduce(void* data, int64_t elements, DType dtype) {
  std::vector<int64_t> blocks;
  for (int of = 0; of < size(); ++of) blocks.push_back(elements * (of + 1) / size() - elements * of / size());
  const int64_t first = offset_of_rank(blocks, rank);
  with_number_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    sum_blocks(static_cast<T*>(data), static_cast<T*>(data) + first, blocks, Op::allreduce);
  });
  for (int64_t& block : blocks) block *= bytes_of(dtype);
  post_allgather(at(data, offset_of_rank(blocks, rank)), at(data, 0), blocks);
  exchange(Op::allreduce);
}

void Group::broadcast(void* data, int64_t bytes, int root) {
  if (rank != root) add(false, root, data, bytes);
  for (int distance = 1; rank == root && distance < size(); ++distance)
    add(true, (rank + distance) % size(), data, bytes);
  exchange(Op::broadcast);
}

/// Runs a dissemination barrier (Hensgen, Finkel and Manber, 1988): after the round of distance d, the 2 d - 1 ranks
/// before each rank have arrived.
void Group::barrier() {
  std::byte told{}, heard{};
  for (int distance = 1; distance < size(); distance *= 2) {
    add(false, (rank + size() - distance) % size(), &heard, 1);
    add(true, (rank + distance) % size(), &told, 1);
    exchange(Op::barrier);
  }
}

void Group::send(const void* data, int64_t bytes, int peer) {
  add(true, peer, data, bytes);
  exchange(Op::pair);
}

void Group::receive(void* data, int64_t bytes, int peer) {
  add(false, peer, data, bytes);
  exchange(Op::pair);
}

Progress Group::progress() const {
  Progress progress = mesh_ ? mesh_->progress() : Progress();
  if (progress.peer >= 0) progress.peer = ranks[progress.peer];
  return progress;
}

void Group::abort() {
  if (mesh_) mesh_->abort();
}

std::string Group::doing() const {
  const std::lock_guard lock(mutex_);
  return op_.empty() ? std::string() : name_operation(op_, task_);
}

void Group::set_doing(std::string_view op, std::string_view task) {
  const std::lock_guard lock(mutex_);
  op_ = op;
  task_ = task;
}

}  // namespace moe::gloo
