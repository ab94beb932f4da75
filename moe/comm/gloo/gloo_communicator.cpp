#include <algorithm>
#include <exception>
#include <utility>

#include "moe/base/check.h"
#include "moe/comm/gloo/detail/gloo_state.h"

namespace moe::gloo {
namespace {

using Blocks = std::vector<int64_t>;

/// An operation queued on a stream.
template <class Work>
class Operation {
 public:
  Operation(std::shared_ptr<State> state, std::shared_ptr<Group> group, std::string_view op, std::string_view task,
            Work work)
      : state_(std::move(state)), group_(std::move(group)), op_(op), task_(task), work_(std::move(work)) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Reports a suspicion if the stream skipped the operation, since the other ranks wait for it. The stream's exception
  /// replaces it if it is reported soon, because it says more.
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
  std::string name() const { return name_operation(op_, task_); }
  const std::shared_ptr<State> state_;
  const std::shared_ptr<Group> group_;
  const std::string_view op_, task_;
  const Work work_;
  bool ran_ = false;
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(std::shared_ptr<State> state, std::shared_ptr<Group> group)
      : state_(std::move(state)), group_(std::move(group)), exceptions_(std::uncaught_exceptions()) {}

  /// Keeps the connections open during stack unwinding, so that the others can read the reason before they close.
  ~GlooCommunicator() override {
    if (std::uncaught_exceptions() > exceptions_) state_->keep_group(group_);
  }

  int rank() const override { return group_->rank; }
  int size() const override { return group_->size(); }

  std::unique_ptr<Communicator> split(int colour, int key) override;
  void abort(const std::string& reason) override {
    state_->fail(fmt::format("rank {} aborted: {}", state_->rank, reason));
  }

 private:
  void do_alltoall(const void* send, void* receive, int64_t block_bytes, CommCall call) override {
    launch("alltoall", call,
           [=, blocks = equal_blocks(block_bytes)](Group& group) { group.alltoall(send, blocks, receive, blocks); });
  }

  void do_alltoallv(const void* send, Blocks send_bytes, void* receive, Blocks receive_bytes, CommCall call) override {
    launch("alltoallv", call, [=, to = std::move(send_bytes), from = std::move(receive_bytes)](Group& group) {
      group.alltoall(send, to, receive, from);
    });
  }

  void do_allgather(const void* send, void* receive, int64_t block_bytes, CommCall call) override {
    launch("allgather", call,
           [=, blocks = equal_blocks(block_bytes)](Group& group) { group.allgather(send, receive, blocks); });
  }

  void do_allgatherv(const void* send, void* receive, Blocks block_bytes, CommCall call) override {
    launch("allgatherv", call,
           [=, blocks = std::move(block_bytes)](Group& group) { group.allgather(send, receive, blocks); });
  }

  void do_reducescatter(const void* send, void* receive, int64_t block, DType dtype, CommCall call) override {
    launch("reducescatter", call,
           [=, blocks = equal_blocks(block)](Group& group) { group.reducescatter(send, receive, blocks, dtype); });
  }

  void do_reducescatterv(const void* send, void* receive, Blocks blocks, DType dtype, CommCall call) override {
    launch("reducescatterv", call,
           [=, blocks = std::move(blocks)](Group& group) { group.reducescatter(send, receive, blocks, dtype); });
  }

  void do_allreduce(void* data, int64_t elements, DType dtype, CommCall call) override {
    launch("allreduce", call, [=](Group& group) { group.allreduce(data, elements, dtype); });
  }

  void do_broadcast(void* data, int64_t bytes, int root, CommCall call) override {
    launch("broadcast", call, [=](Group& group) { group.broadcast(data, bytes, root); });
  }

  void do_barrier(CommCall call) override {
    launch("barrier", call, [](Group& group) { group.barrier(); });
  }

  void do_send(const void* data, int64_t bytes, int peer, CommCall call) override {
    launch("send", call, [=](Group& group) { group.send(data, bytes, peer); });
  }

  void do_receive(void* data, int64_t bytes, int peer, CommCall call) override {
    launch("receive", call, [=](Group& group) { group.receive(data, bytes, peer); });
  }

  Blocks equal_blocks(int64_t block) const { return Blocks(static_cast<size_t>(size()), block); }

  template <class Work>
  void launch(std::string_view op, CommCall& call, Work work) {
    auto operation = std::make_shared<Operation<Work>>(state_, group_, op, call.task, std::move(work));
    call.stream.launch([operation = std::move(operation)](void*) { operation->run(); });
  }

  const std::shared_ptr<State> state_;
  const std::shared_ptr<Group> group_;
  const int exceptions_;  // exceptions in flight when this was made
};

struct Choice {
  int colour = 0, key = 0;
};

/// Returns the choice of each member of the group, by rank.
std::vector<Choice> exchange_choices(State& state, const Group& group, const std::string& name, Choice ours) {
  if (group.size() == 1) return {ours};
  const auto fail = [&] { throw RankFailure(fmt::format("rank {} in split: {}", state.rank, state.verdict())); };
  std::vector<std::string> keys;
  for (int rank = 0; rank < group.size(); ++rank) keys.push_back(fmt::format("split/{}/{}", name, rank));
  try {
    state.store->set(keys[group.rank], store::pack({std::to_string(ours.colour), std::to_string(ours.key)}));
    const auto missing = state.store->wait(keys, state.timeout_s, [&] { return state.failed(); });
    if (missing) {
      const int rank = group.ranks[*missing];
      state.suspect({fmt::format("rank {} has not answered for {:.1f} s", rank, state.timeout_s)}, 0);
      fail();
    }
    std::vector<Choice> choices;
    for (const std::string& packed : state.store->get_all(keys)) {
      const auto texts = store::unpack(packed);
      choices.push_back({std::stoi(texts.at(0)), std::stoi(texts.at(1))});
    }
    return choices;
  } catch (const store::StoreLost& error) {
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
    if (choices[rank].colour == colour) members.push_back(rank);
  std::ranges::stable_sort(members, {}, [&](int rank) { return choices[rank].key; });
  std::vector<int> world_ranks;
  for (const int rank : members) world_ranks.push_back(group_->ranks[rank]);
  return make_communicator(state_, state_->make_group(fmt::format("{}:{}", name, colour), world_ranks));
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<State> state, std::shared_ptr<Group> group) {
  return std::make_unique<GlooCommunicator>(std::move(state), std::move(group));
}

}  // namespace moe::gloo
