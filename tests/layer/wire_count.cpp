#include "tests/layer/wire_count.h"

#include <algorithm>
#include <numeric>

namespace moe {
namespace {

class Counted final : public Communicator {
 public:
  Counted(std::unique_ptr<Communicator> inner, std::vector<int> members, WireCount& count)
      : inner_(std::move(inner)), members_(std::move(members)), count_(count) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  void abort(const std::string& reason) override { inner_->abort(reason); }

  std::unique_ptr<Communicator> split(int colour, int key) override {
    auto child = inner_->split(colour, key);
    if (!child) return nullptr;
    const auto device = make_cpu_device();
    const auto lane = device->make_stream("names");
    const int own = members_[rank()];
    std::vector<int> members(child->size());
    child->allgather(&own, members.data(), sizeof own, {*lane});
    lane->synchronize();
    return std::make_unique<Counted>(std::move(child), std::move(members), count_);
  }

 private:
  bool applies_pace() const override { return true; }  // or the inner one refuses

  void do_alltoall(const void* send, void* receive, int64_t block_bytes, CommCall call) override {
    for (int to = 0; to < size(); ++to) sends(to, block_bytes);
    inner_->alltoall(send, receive, block_bytes, call);
  }
  void do_alltoallv(const void* send, std::vector<int64_t> send_bytes, void* receive,
                    std::vector<int64_t> receive_bytes, CommCall call) override {
    for (int to = 0; to < size(); ++to) sends(to, send_bytes[to]);
    inner_->alltoallv(send, std::move(send_bytes), receive, std::move(receive_bytes), call);
  }
  void do_allgather(const void* send, void* receive, int64_t block_bytes, CommCall call) override {
    inner_->allgather(send, receive, block_bytes, call);
  }
  void do_allgatherv(const void* send, void* receive, std::vector<int64_t> block_bytes, CommCall call) override {
    inner_->allgatherv(send, receive, std::move(block_bytes), call);
  }
  void do_reducescatter(const void* send, void* receive, int64_t block, DType dtype, CommCall call) override {
    inner_->reducescatter(send, receive, block, dtype, call);
  }
  void do_reducescatterv(const void* send, void* receive, std::vector<int64_t> blocks, DType dtype,
                         CommCall call) override {
    inner_->reducescatterv(send, receive, std::move(blocks), dtype, call);
  }
  void do_allreduce(void* data, int64_t elements, DType dtype, CommCall call) override {
    inner_->allreduce(data, elements, dtype, call);
  }
  void do_broadcast(void* data, int64_t bytes, int root, CommCall call) override {
    inner_->broadcast(data, bytes, root, call);
  }
  void do_barrier(CommCall call) override { inner_->barrier(call); }
  void do_send(const void* data, int64_t bytes, int peer, CommCall call) override {
    inner_->send(data, bytes, peer, call);
  }
  void do_receive(void* data, int64_t bytes, int peer, CommCall call) override {
    inner_->receive(data, bytes, peer, call);
  }

  void sends(int to, int64_t bytes) {
    if (to != rank() && bytes > 0) count_.add(members_[rank()], members_[to], bytes);
  }

  std::unique_ptr<Communicator> inner_;
  std::vector<int> members_;  // their ranks of the world
  WireCount& count_;
};

}  // namespace

void WireCount::add(int from, int to, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  messages_[{from, to}].push_back(bytes);
}

std::vector<int64_t> WireCount::between(int from_node, int to_node, int ranks_per_node) const {
  std::vector<int64_t> sizes;
  for (const auto& [ranks, sent] : messages_)
    if (ranks.first / ranks_per_node == from_node && ranks.second / ranks_per_node == to_node)
      sizes.insert(sizes.end(), sent.begin(), sent.end());
  std::ranges::sort(sizes);
  return sizes;
}

int64_t WireCount::bytes() const {
  int64_t sum = 0;
  for (const auto& [ranks, sent] : messages_) sum = std::accumulate(sent.begin(), sent.end(), sum);
  return sum;
}

std::unique_ptr<Communicator> counted(std::unique_ptr<Communicator> world, WireCount& count) {
  std::vector<int> members(world->size());
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<Counted>(std::move(world), std::move(members), count);
}

}  // namespace moe
