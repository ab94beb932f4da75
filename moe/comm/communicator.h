#pragma once
// A communicator: a group of ranks, one of which is this one. It has no global state. Every operation enqueues on a
// stream and returns. All members call the same operations in the same order, each from one stream: two lanes need two
// communicators. Buffers must live until the stream has passed them. The public calls throw BadInput for arguments that
// are wrong on any rank; errors that only the ranks together can detect are RankFailure out of the stream.
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

  /// Sends block i of `send` to rank i and gets block i of `receive` from rank i, each of `block_bytes`. Not in place.
  void alltoall(const void* send, void* receive, int64_t block_bytes, CommCall call);
  /// Moves unequal blocks, packed: send_bytes[i] to rank i, receive_bytes[i] from rank i; for our own rank the two are
  /// equal. Not in place.
  void alltoallv(const void* send, std::vector<int64_t> send_bytes, void* receive, std::vector<int64_t> receive_bytes,
                 CommCall call);
  /// Gathers size() blocks of `block_bytes` in `receive`, by rank; our block may already lie there (send == receive +
  /// rank block_bytes).
  void allgather(const void* send, void* receive, int64_t block_bytes, CommCall call);
  /// Gathers unequal blocks, packed: block_bytes[i] from rank i, the same on every rank; our block may already lie in
  /// `receive`.
  void allgatherv(const void* send, void* receive, std::vector<int64_t> block_bytes, CommCall call);
  /// Sums size() blocks of `block` elements in rank order; block rank() is kept. Not in place.
  void reducescatter(const void* send, void* receive, int64_t block, DType dtype, CommCall call);
  /// Sums unequal blocks of blocks[i] elements, packed, the same on every rank; block rank() is kept. Not in place.
  void reducescatterv(const void* send, void* receive, std::vector<int64_t> blocks, DType dtype, CommCall call);
  /// Sums in place, in rank order.
  void allreduce(void* data, int64_t elements, DType dtype, CommCall call);
  void broadcast(void* data, int64_t bytes, int root, CommCall call);
  void barrier(CommCall call);
  /// Move bytes to and from one other rank. A send may block until its receive begins, so two ranks that both send
  /// first wait for each other.
  void send(const void* data, int64_t bytes, int peer, CommCall call);
  void receive(void* data, int64_t bytes, int peer, CommCall call);

  /// Returns a new communicator of the members with equal colour, ordered by (key, rank); null for a negative colour.
  /// Blocking; all members call it. Each call makes communicators that are independent of all others.
  virtual std::unique_ptr<Communicator> split(int colour, int key) = 0;
  /// Ends the operations of all communicators split from the same world, on every rank, with RankFailure; for good.
  virtual void abort(const std::string& reason) = 0;

 protected:
  /// Returns whether operations keep their call's pace, as the emulated cluster's do. Elsewhere a pace is BadInput.
  virtual bool keeps_pace() const { return false; }

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
