#pragma once
// The members of one communicator, and its operations on a stream's thread: pairwise exchanges, and sums in rank
// order.
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/units.h"
#include "moe/comm/gloo/detail/mesh.h"

namespace moe::gloo {

/// The kind of an operation, which is part of its messages' tags; sizes alone do not distinguish operations.
enum class Op { alltoall, allgather, reducescatter, allreduce, broadcast, barrier, pair };

/// An exchange that ended early.
struct BrokenExchange {
  Mesh::End end = Mesh::End::aborted;
  int peer = -1;  // rank of the world
};

class Group {
 public:
  /// `mesh` is null if the group has one member.
  Group(std::string name, std::vector<int> world_ranks, int rank, std::unique_ptr<Mesh> mesh);

  const std::string name;        // unique among groups
  const std::vector<int> ranks;  // ranks of the world, by rank in the group
  const int rank;
  int splits = 0;  // number of splits so far; used by the issuing thread only

  int size() const { return static_cast<int>(ranks.size()); }

  /// The operations throw BrokenExchange. Blocks are packed; null pointers are fine if nothing is moved.
  void alltoall(const void* send, const std::vector<int64_t>& send_bytes, void* receive,
                const std::vector<int64_t>& receive_bytes);
  void allgather(const void* send, void* receive, const std::vector<int64_t>& block_bytes);
  void reducescatter(const void* send, void* receive, const std::vector<int64_t>& blocks, DType dtype);
  void allreduce(void* data, int64_t elements, DType dtype);
  void broadcast(void* data, int64_t bytes, int root);
  void barrier();
  void send(const void* data, int64_t bytes, int peer);
  void receive(void* data, int64_t bytes, int peer);

  /// Returns the progress of the running operation, if there is one; its peer is a rank of the world.
  Progress progress() const;
  void abort();

  /// Returns the running operation, "'forward dispatch 1/2 of layer 0' (alltoall)"; empty if there is none.
  std::string doing() const;
  void set_doing(std::string_view op, std::string_view task);

 private:
  void exchange(Op op);
  void add(bool send, int peer, const void* data, int64_t bytes);
  void post_allgather(const std::byte* ours, std::byte* all, const std::vector<int64_t>& block_bytes);
  template <class T>
  void sum_blocks(const T* send, T* receive, const std::vector<int64_t>& blocks, Op op);

  const std::unique_ptr<Mesh> mesh_;
  std::vector<Message> messages_;  // messages of the running operation; the next one reuses the memory
  std::unique_ptr<std::byte[]> scratch_;
  int64_t scratch_bytes_ = 0;
  mutable std::mutex mutex_;
  std::string op_, task_;  // guarded by mutex_; copies: doing() may run after the task is destroyed
};

/// Returns "'forward dispatch 1/2 of layer 0' (alltoall)", or "alltoall" if the task has no name.
std::string name_operation(std::string_view op, std::string_view task);

}  // namespace moe::gloo
