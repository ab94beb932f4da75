#include "moe/comm/communicator.h"

#include <utility>

#include "moe/base/check.h"

namespace moe {

/// Refuses calls that are wrong on any rank: BadInput names the operation, its task and both operands.
class Communicator::Check {
 public:
  Check(const Communicator& group, std::string_view op, const CommCall& call)
      : group_(group), op_(op), task_(call.task) {
    require<BadInput>(group.applies_pace() || call.pace.at_least_s <= 0,
                      "{} '{}': a pace of {} s: only the emulated cluster is paced", op_, task_, call.pace.at_least_s);
    require<Unsupported>(!group.applies_pace() || !call.pace.pacer || !call.stream.calls_work_immediately(),
                         "{} '{}': tasks that slow each other down are paced on the CPU alone", op_, task_);
  }

  const Check& size(int64_t size) const {
    require<BadInput>(size >= 0, "{} '{}': found size {}, expected 0 or more", op_, task_, size);
    return *this;
  }
  const Check& blocks(const std::vector<int64_t>& blocks) const {
    require<BadInput>(blocks.size() == static_cast<size_t>(group_.size()),
                      "{} '{}': found {} blocks, expected one for each of {} ranks", op_, task_, blocks.size(),
                      group_.size());
    for (const int64_t block : blocks) size(block);
    return *this;
  }
  void own_block(const std::vector<int64_t>& sent, const std::vector<int64_t>& received) const {
    const auto own = static_cast<size_t>(group_.rank());
    require<BadInput>(sent[own] == received[own], "{} '{}': rank {} sends itself {} bytes, expects {}", op_, task_, own,
                      sent[own], received[own]);
  }
  void root(int root) const {
    require<BadInput>(root >= 0 && root < group_.size(), "{} '{}': found root {}, expected one of {} ranks", op_, task_,
                      root, group_.size());
  }
  void peer(int peer) const {
    require<BadInput>(peer >= 0 && peer < group_.size() && peer != group_.rank(),
                      "{} '{}': rank {} found peer {}, expected another one of {} ranks", op_, task_, group_.rank(),
                      peer, group_.size());
  }

 private:
  const Communicator& group_;
  const std::string_view op_, task_;
};

void Communicator::alltoall(const void* send, void* receive, int64_t block_bytes, CommCall call) {
  Check(*this, "alltoall", call).size(block_bytes);
  do_alltoall(send, receive, block_bytes, call);
}

void Communicator::alltoallv(const void* send, std::vector<int64_t> send_bytes, void* receive,
                             std::vector<int64_t> receive_bytes, CommCall call) {
  Check(*this, "alltoallv", call).blocks(send_bytes).blocks(receive_bytes).own_block(send_bytes, receive_bytes);
  do_alltoallv(send, std::move(send_bytes), receive, std::move(receive_bytes), call);
}

void Communicator::allgather(const void* send, void* receive, int64_t block_bytes, CommCall call) {
  Check(*this, "allgather", call).size(block_bytes);
  do_allgather(send, receive, block_bytes, call);
}

void Communicator::allgatherv(const void* send, void* receive, std::vector<int64_t> block_bytes, CommCall call) {
  Check(*this, "allgatherv", call).blocks(block_bytes);
  do_allgatherv(send, receive, std::move(block_bytes), call);
}

void Communicator::reducescatter(const void* send, void* receive, int64_t block, DType dtype, CommCall call) {
  Check(*this, "reducescatter", call).size(block);
  do_reducescatter(send, receive, block, dtype, call);
}

void Communicator::reducescatterv(const void* send, void* receive, std::vector<int64_t> blocks, DType dtype,
                                  CommCall call) {
  Check(*this, "reducescatterv", call).blocks(blocks);
  do_reducescatterv(send, receive, std::move(blocks), dtype, call);
}

void Communicator::allreduce(void* data, int64_t elements, DType dtype, CommCall call) {
  Check(*this, "allreduce", call).size(elements);
  do_allreduce(data, elements, dtype, call);
}

void Communicator::broadcast(void* data, int64_t bytes, int root, CommCall call) {
  Check(*this, "broadcast", call).size(bytes).root(root);
  do_broadcast(data, bytes, root, call);
}

void Communicator::barrier(CommCall call) {
  const Check checked(*this, "barrier", call);
  do_barrier(call);
}

void Communicator::send(const void* data, int64_t bytes, int peer, CommCall call) {
  Check(*this, "send", call).size(bytes).peer(peer);
  do_send(data, bytes, peer, call);
}

void Communicator::receive(void* data, int64_t bytes, int peer, CommCall call) {
  Check(*this, "receive", call).size(bytes).peer(peer);
  do_receive(data, bytes, peer, call);
}

}  // namespace moe
