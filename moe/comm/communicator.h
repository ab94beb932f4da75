#pragma once
// A communicator: one rank's handle on a group of ranks. There is no global state. Every operation enqueues on a stream
// and returns. All members call the same operations in the same order, each from one stream: two lanes need two
// communicators. Buffers must live until the stream has finished the operation. The public calls throw BadInput for
// arguments that are wrong on any rank; errors that show only between ranks (a missing rank, different operations) are
// RankFailures of the stream.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/units.h"
#include "moe/device/stream.h"

namespace moe {

/// The stream of an operation, its pace, and its name in error messages ("backward dispatch 2/4 of layer 0").
struct CommCall {
  Stream& stream;
  Pace pace = {};
  std::string_view task = {};  // must outlive the operation
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // number of this rank inside the group
  virtual int size() const = 0;

  /// Sends block i of `send` to rank i and gets block i of `receive` from rank i, each of `block_bytes` bytes. Not in
  /// place.
  void alltoall(const void* send, void* receive, int64_t block_bytes, CommCall call);
  /// Moves unequal blocks, packed: send_bytes[i] to rank i, receive_bytes[i] from rank i; the two are equal for i =
  /// rank(). Not in place.
  void alltoallv(const void* send, std::vector<int64_t> send_bytes, void* receive, std::vector<int64_t> receive_bytes,
                 CommCall call);
  /// Gathers one block of `block_bytes` from each rank into `receive`, in rank order. In place if `send` is `receive` +
  /// rank() x block_bytes.
  void allgather(const void* send, void* receive, int64_t block_bytes, CommCall call);
  /// Gathers unequal blocks, packed: block_bytes[i] from rank i; `block_bytes` is the same on every rank. May be in
  /// place, as allgather().
  void allgatherv(const void* send, void* receive, std::vector<int64_t> block_bytes, CommCall call);
  /// Sums the ranks' `send` buffers, of size() x `block` elements each, in rank order; `receive` gets block rank() of
  /// the sum. Not in place.
  void reducescatter(const void* send, void* receive, int64_t block, DType dtype, CommCall call);
  /// Does the same with packed blocks of blocks[i] elements; `blocks` is the same on every rank. Not in place.
  void reducescatterv(const void* send, void* receive, std::vector<int64_t> blocks, DType dtype, CommCall call);
  /// Sums in place, in rank order.
  void allreduce(void* data, int64_t elements, DType dtype, CommCall call);
  void broadcast(void* data, int64_t bytes, int root, CommCall call);
  void barrier(CommCall call);
  /// Transfer bytes to or from one other rank. A send may block until its receive begins, so two ranks that both send
  /// first wait for each other.
  void send(const void* data, int64_t bytes, int peer, CommCall call);
  void receive(void* data, int64_t bytes, int peer, CommCall call);

  /// Returns a new communicator of the members with equal colour, ordered by (key, rank); null for a negative colour.
  /// Blocking; all members call it. Each call makes communicators that are independent of all others.
  virtual std::unique_ptr<Communicator> split(int colour, int key) = 0;
  /// Makes running and later operations of all communicators of the same world fail with RankFailure, on every rank.
  virtual void abort(const std::string& reason) = 0;

 protected:
  /// Returns whether operations apply CommCall::pace (the emulated cluster's do); if not, a call with a pace throws
  /// BadInput.
  virtual bool applies_pace() const { return false; }

  // These run the operations above, once the arguments are checked.
  virtual void do_alltoall(const void* send, void* receive, int64_t block_bytes, CommCall call) = 0;
  virtual void do_alltoallv(const void* send, std::vector<int64_t> send_bytes, void* receive,
                            std::vector<int64_t> receive_bytes, CommCall call) = 0;
  virtual void do_allgather(const void* send, void* receive, int64_t block_bytes, CommCall call) = 0;
  virtual void do_allgatherv(const void* send, void* receive, std::vector<int64_t> block_bytes, CommCall call) = 0;
  virtual void do_reducescatter(const void* send, void* receive, int64_t block, DType dtype, CommCall call) = 0;
  virtual void do_reducescatterv(const void* send, void* receive, std::vector<int64_t> blocks, DType dtype,
                                 CommCall call) = 0;
  virtual void do_allreduce(void* data, int64_t elements, DType dtype, CommCall call) = 0;
  virtual void do_broadcast(void* data, int64_t bytes, int root, CommCall call) = 0;
  virtual void do_barrier(CommCall call) = 0;
  virtual void do_send(const void* data, int64_t bytes, int peer, CommCall call) = 0;
  virtual void do_receive(void* data, int64_t bytes, int peer, CommCall call) = 0;

 private:
  class Check;
};

}  // namespace moe
