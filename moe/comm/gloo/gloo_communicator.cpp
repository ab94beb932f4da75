#include <algorithm>
#include <exception>
#include <utility>

#include "moe/base/check.h"
#include "moe/comm/arguments.h"
#include "moe/comm/gloo/gloo_state.h"

namespace moe {
namespace {

using Blocks = std::vector<int64_t>;

/// One operation on its way through a stream.
template <class Work>
class Operation {
 public:
  Operation(std::shared_ptr<GlooWorld::State> state, std::shared_ptr<gloo::Group> group, std::string_view op,
            std::string_view task, Work work)
      : state_(std::move(state)), group_(std::move(group)), op_(op), task_(task), work_(std::move(work)) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// The other ranks would wait for what the stream skipped. Its own failure, if we hear of it soon, says more.
  ~Operation() {
    if (ran_ || state_->failed()) return;
    try {
      state_->suspect({fmt::format("rank {} skipped {}, since its earlier work failed", state_->rank, name())},
                      std::min(1.0, state_->timeout_s / 5));
    } catch (...) {  // out of memory for the message: the timeout remains
    }
  }

  void run() {
    ran_ = true;
    state_->run(*group_, op_, task_, [this] { work_(*group_); });
  }

 private:
  std::string name() const { return gloo::name_operation(op_, task_); }
  const std::shared_ptr<GlooWorld::State> state_;
  const std::shared_ptr<gloo::Group> group_;
  const std::string_view op_, task_;
  const Work work_;
  bool ran_ = false;
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(std::shared_ptr<GlooWorld::State> state, std::shared_ptr<gloo::Group> group)
      : state_(std::move(state)), group_(std::move(group)), exceptions_(std::uncaught_exceptions()) {}

  /// The others must not see closed connections before they can read which exception closes them.
  ~GlooCommunicator() override {
    if (std::uncaught_exceptions() > exceptions_) state_->keep(group_);
  }

  int rank() const override { return group_->rank; }
  int size() const override { return group_->size(); }

  void alltoall(const void* send, void* receive, int64_t block_bytes, CommCall call) override {
    require_size("alltoall", block_bytes, call);
    launch("alltoall", call,
           [=, blocks = equal(block_bytes)](gloo::Group& group) { group.alltoall(send, blocks, receive, blocks); });
  }

  void alltoallv(const void* send, Blocks send_bytes, void* receive, Blocks receive_bytes, CommCall call) override {
    require_alltoallv(*this, send_bytes, receive_bytes, call);
    launch("alltoallv", call, [=, to = std::move(send_bytes), from = std::move(receive_bytes)](gloo::Group& group) {
      group.alltoall(send, to, receive, from);
    });
  }

  void allgather(const void* send, void* receive, int64_t block_bytes, CommCall call) override {
    require_size("allgather", block_bytes, call);
    launch("allgather", call,
           [=, blocks = equal(block_bytes)](gloo::Group& group) { group.allgather(send, receive, blocks); });
  }

  void allgatherv(const void* send, void* receive, Blocks block_bytes, CommCall call) override {
    require_blocks(*this, "allgatherv", block_bytes, call);
    launch("allgatherv", call,
           [=, blocks = std::move(block_bytes)](gloo::Group& group) { group.allgather(send, receive, blocks); });
  }

  void reducescatter(const void* send, void* receive, int64_t block, DType dtype, CommCall call) override {
    require_size("reducescatter", block, call);
    launch("reducescatter", call,
           [=, blocks = equal(block)](gloo::Group& group) { group.reducescatter(send, receive, blocks, dtype); });
  }

  void reducescatterv(const void* send, void* receive, Blocks blocks, DType dtype, CommCall call) override {
    require_blocks(*this, "reducescatterv", blocks, call);
    launch("reducescatterv", call,
           [=, blocks = std::move(blocks)](gloo::Group& group) { group.reducescatter(send, receive, blocks, dtype); });
  }

  void allreduce(void* data, int64_t elements, DType dtype, CommCall call) override {
    require_size("allreduce", elements, call);
    launch("allreduce", call, [=](gloo::Group& group) { group.allreduce(data, elements, dtype); });
  }

  void broadcast(void* data, int64_t bytes, int root, CommCall call) override {
    require_size("broadcast", bytes, call);
    require_root(*this, root, call);
    launch("broadcast", call, [=](gloo::Group& group) { group.broadcast(data, bytes, root); });
  }

  void barrier(CommCall call) override {
    launch("barrier", call, [](gloo::Group& group) { group.barrier(); });
  }

  void send(const void* data, int64_t bytes, int peer, CommCall call) override {
    require_size("send", bytes, call);
    require_peer(*this, "send", peer, call);
    launch("send", call, [=](gloo::Group& group) { group.send(data, bytes, peer); });
  }

  void receive(void* data, int64_t bytes, int peer, CommCall call) override {
    require_size("receive", bytes, call);
    require_peer(*this, "receive", peer, call);
    launch("receive", call, [=](gloo::Group& group) { group.receive(data, bytes, peer); });
  }

  std::unique_ptr<Communicator> split(int colour, int key) override;
  void abort(const std::string& reason) override {
    state_->fail(fmt::format("rank {} aborted: {}", state_->rank, reason));
  }

 private:
  Blocks equal(int64_t block) const { return Blocks(static_cast<size_t>(size()), block); }

  static void require_size(std::string_view op, int64_t size, const CommCall& call) {
    require<BadInput>(size >= 0, "{} '{}': a size of {}", op, call.task, size);
  }

  template <class Work>
  void launch(std::string_view op, CommCall& call, Work work) {
    require<BadInput>(call.pace.at_least_s <= 0, "{} '{}': a pace of {} s: only the emulated cluster is paced", op,
                      call.task, call.pace.at_least_s);
    auto operation = std::make_shared<Operation<Work>>(state_, group_, op, call.task, std::move(work));
    call.stream.launch([operation = std::move(operation)](void*) { operation->run(); });
  }

  const std::shared_ptr<GlooWorld::State> state_;
  const std::shared_ptr<gloo::Group> group_;
  const int exceptions_;  // in flight when it was made
};

struct Choice {
  int colour = 0, key = 0;
};

/// What each member of the group chose, by its rank.
std::vector<Choice> exchange_choices(GlooWorld::State& state, const gloo::Group& group, const std::string& name,
                                     Choice ours) {
  if (group.size() == 1) return {ours};
  const auto fail = [&] { throw RankFailure(fmt::format("rank {} in split: {}", state.rank, state.verdict())); };
  std::vector<std::string> keys;
  for (int rank = 0; rank < group.size(); ++rank) keys.push_back(fmt::format("split/{}/{}", name, rank));
  try {
    state.store->set(keys[static_cast<size_t>(group.rank)],
                     pack({std::to_string(ours.colour), std::to_string(ours.key)}));
    const auto missing = state.store->wait(keys, state.timeout_s, [&] { return state.failed(); });
    if (missing) {
      const int rank = group.ranks[*missing];
      state.suspect({fmt::format("rank {} has not answered for {:.1f} s", rank, state.timeout_s)}, 0);
      fail();
    }
    std::vector<Choice> choices;
    for (const std::string& packed : state.store->get_all(keys)) {
      const auto texts = unpack(packed);
      choices.push_back({std::stoi(texts.at(0)), std::stoi(texts.at(1))});
    }
    return choices;
  } catch (const StoreLost& error) {
    state.suspect({error.what()}, 0);
    fail();
  }
  return {};
}

std::unique_ptr<Communicator> GlooCommunicator::split(int colour, int key) {
  if (state_->failed()) throw RankFailure(fmt::format("rank {} in split: {}", state_->rank, state_->verdict()));
  const std::string name = fmt::format("{}/{}", group_->name, group_->splits++);
  const auto choices = exchange_choices(*state_, *group_, name, {colour, key});
  if (colour < 0) return nullptr;
  std::vector<int> members;
  for (int rank = 0; rank < size(); ++rank)
    if (choices[static_cast<size_t>(rank)].colour == colour) members.push_back(rank);
  std::ranges::stable_sort(members, {}, [&](int rank) { return choices[static_cast<size_t>(rank)].key; });
  std::vector<int> world_ranks;
  for (const int rank : members) world_ranks.push_back(group_->ranks[static_cast<size_t>(rank)]);
  return make_gloo_communicator(state_, state_->make_group(fmt::format("{}:{}", name, colour), world_ranks));
}

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(std::shared_ptr<GlooWorld::State> state,
                                                     std::shared_ptr<gloo::Group> group) {
  return std::make_unique<GlooCommunicator>(std::move(state), std::move(group));
}

}  // namespace moe
