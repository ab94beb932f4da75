#include <algorithm>
#include <numeric>
#include <utility>

#include "moe/base/check.h"
#include "moe/comm/local/detail/state.h"
#include "moe/device/cpu/pace_clock.h"

namespace moe::local {
namespace {

struct Place {
  std::shared_ptr<State> state;
  std::shared_ptr<Group> group;
  int rank = 0;

  int world_rank() const { return group->ranks[rank]; }
};

/// An operation queued on a stream.
class QueuedOperation {
 public:
  /// `member` is this rank's number among the members of `rendezvous`: the group's, or a sender (0) and its receiver
  /// (1).
  QueuedOperation(Place place, Rendezvous& rendezvous, int member, Operation operation)
      : place_(std::move(place)), rendezvous_(rendezvous), member_(member), operation_(std::move(operation)) {}
  QueuedOperation(const QueuedOperation&) = delete;
  QueuedOperation& operator=(const QueuedOperation&) = delete;

  /// Aborts the world if the stream skipped the operation, because the other ranks wait for it.
  ~QueuedOperation() {
    if (ran_) return;
    try {
      place_.state->abort(
          fmt::format("rank {} skipped {}, since its earlier work failed", place_.world_rank(), describe(operation_)));
    } catch (...) {  // out of memory for the message: the timeout remains
    }
  }

  void run(Stream& stream) {
    ran_ = true;
    cpu::PaceClock* clock = stream.pace_clock();
    if (clock != nullptr)
      meet_on_stream(*clock);
    else
      meet_at_issue(stream);
  }

 private:
  void meet_on_stream(cpu::PaceClock& clock) {
    operation_.began_s = clock.time_s();
    operation_.paced = clock.is_paced();
    const Rendezvous::Turn turn = rendezvous_.meet(member_, operation_);
    execute_moves_on_host(moves_of(rendezvous_.operations(), member_));
    rendezvous_.depart();
    const bool in_time = hold(turn, clock);
    if (!in_time && operation_.pace.overruns) operation_.pace.overruns->fetch_add(1, std::memory_order_relaxed);
    rendezvous_.leave(turn);
  }

  /// The ranks' threads meet while they issue, because a stream can wait only for an event that was recorded. A member
  /// records an event again only after all have waited for its last record: `ready` once all departed, `done` once all
  /// met again.
  void meet_at_issue(Stream& stream) {
    Marks& ours = rendezvous_.marks(member_);
    if (!ours.ready) ours = {stream.make_event(), stream.make_event(), stream.make_event()};
    stream.record(*ours.ready);
    const Rendezvous::Turn turn = rendezvous_.meet(member_, operation_);
    wait_for_others(stream, &Marks::ready);
    const double at_least_s = longest_pace(rendezvous_.operations());
    if (at_least_s > 0) stream.mark(*ours.began);
    stream.move(moves_of(rendezvous_.operations(), member_));
    if (at_least_s > 0) stream.hold(*ours.began, {.at_least_s = at_least_s, .overruns = operation_.pace.overruns});
    stream.record(*ours.done);
    rendezvous_.depart();
    rendezvous_.leave(turn);
    wait_for_others(stream, &Marks::done);
  }

  void wait_for_others(Stream& stream, std::unique_ptr<Event> Marks::*which) const {
    for (int other = 0; other < rendezvous_.members(); ++other)
      if (other != member_) stream.wait(*(rendezvous_.marks(other).*which));
  }

  static double longest_pace(const Operations& operations) {
    double longest = 0;
    for (const Operation* operation : operations) longest = std::max(longest, operation->pace.at_least_s);
    return longest;
  }

  /// Waits for the paced end of the operation; returns false if it had passed already.
  bool hold(const Rendezvous::Turn& turn, cpu::PaceClock& clock) const {
    if (turn.running) return operation_.pace.pacer->finish(*turn.running);
    if (turn.ends_s > 0) return clock.hold_until(turn.ends_s);
    if (turn.paced) clock.wait(turn.began_s, true);
    return true;
  }

  const Place place_;
  Rendezvous& rendezvous_;  // part of the group, which place_ keeps alive
  const int member_;
  Operation operation_;
  bool ran_ = false;
};

class LocalCommunicator final : public Communicator {
 public:
  explicit LocalCommunicator(Place place) : place_(std::move(place)) {}

  int rank() const override { return place_.rank; }
  int size() const override { return static_cast<int>(place_.group->ranks.size()); }

  std::unique_ptr<Communicator> split(int colour, int key) override;

  void abort(const std::string& reason) override {
    place_.state->abort(fmt::format("rank {} aborted: {}", place_.world_rank(), reason));
  }

 private:
  bool applies_pace() const override { return true; }

  void do_alltoall(const void* send, void* receive, int64_t block_bytes, CommCall call) override {
    launch({.op = Op::alltoall, .send = send, .receive = receive, .count = block_bytes}, call);
  }

  void do_alltoallv(const void* send, std::vector<int64_t> send_bytes, void* receive,
                    std::vector<int64_t> receive_bytes, CommCall call) override {
    launch({.op = Op::alltoallv,
            .send = send,
            .receive = receive,
            .send_bytes = std::move(send_bytes),
            .receive_bytes = std::move(receive_bytes)},
           call);
  }

  void do_allgather(const void* send, void* receive, int64_t block_bytes, CommCall call) override {
    launch({.op = Op::allgather, .send = send, .receive = receive, .count = block_bytes}, call);
  }

  void do_allgatherv(const void* send, void* receive, std::vector<int64_t> block_bytes, CommCall call) override {
    launch({.op = Op::allgatherv, .send = send, .receive = receive, .blocks = std::move(block_bytes)}, call);
  }

  void do_reducescatterv(const void* send, void* receive, std::vector<int64_t> blocks, DType dtype,
                         CommCall call) override {
    launch({.op = Op::reducescatterv, .send = send, .receive = receive, .dtype = dtype, .blocks = std::move(blocks)},
           call);
  }

  void do_reducescatter(const void* send, void* receive, int64_t block, DType dtype, CommCall call) override {
    launch({.op = Op::reducescatter, .send = send, .receive = receive, .count = block, .dtype = dtype}, call);
  }

  void do_allreduce(void* data, int64_t elements, DType dtype, CommCall call) override {
    launch({.op = Op::allreduce, .send = data, .receive = data, .count = elements, .dtype = dtype}, call);
  }

  void do_broadcast(void* data, int64_t bytes, int root, CommCall call) override {
    launch({.op = Op::broadcast, .send = data, .receive = data, .count = bytes, .root = root}, call);
  }

  void do_barrier(CommCall call) override { launch({.op = Op::barrier}, call); }

  void do_send(const void* data, int64_t bytes, int peer, CommCall call) override {
    launch({.op = Op::send, .send = data, .count = bytes}, call, place_.group->pair(place_.rank, peer), 0);
  }

  void do_receive(void* data, int64_t bytes, int peer, CommCall call) override {
    launch({.op = Op::receive, .receive = data, .count = bytes}, call, place_.group->pair(peer, place_.rank), 1);
  }

  void launch(Operation operation, CommCall& call) {
    launch(std::move(operation), call, place_.group->operations, place_.rank);
  }

  void launch(Operation operation, CommCall& call, Rendezvous& rendezvous, int member) {
    operation.task = call.task;
    operation.pace = call.pace;
    auto queued = std::make_shared<QueuedOperation>(place_, rendezvous, member, std::move(operation));
    call.stream.launch([queued = std::move(queued), stream = &call.stream](void*) { queued->run(*stream); });
  }

  const Place place_;
};

/// Returns the members with the colour of `rank`, in their new order, by their ranks in the old group.
std::vector<int> same_colour(const Operations& operations, int rank) {
  const auto operation = [&](int member) -> const Operation& { return *operations[member]; };
  std::vector<int> members;
  for (int member = 0; member < static_cast<int>(operations.size()); ++member)
    if (operation(member).colour == operation(rank).colour) members.push_back(member);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return operation(a).key < operation(b).key; });
  return members;
}

std::unique_ptr<Communicator> LocalCommunicator::split(int colour, int key) {
  const int rank = place_.rank;
  Group& group = *place_.group;
  const Operation operation{.op = Op::split, .colour = colour, .key = key};
  Rendezvous::Turn turn = group.splits.meet(rank, operation);
  const std::vector<int> members = same_colour(group.splits.operations(), rank);
  const auto leader = static_cast<size_t>(members.front());
  if (colour >= 0 && members.front() == rank) {
    std::vector<int> world_ranks;
    for (const int member : members) world_ranks.push_back(group.ranks[member]);
    group.children[leader] = place_.state->make_group(std::move(world_ranks));
  }
  group.splits.depart();
  group.splits.leave(turn);

  // The members meet a second time, so that no member starts another split before all have read `children`.
  std::shared_ptr<Group> ours = colour < 0 ? nullptr : group.children[leader];
  turn = group.splits.meet(rank, operation);
  if (members.front() == rank) group.children[leader].reset();
  group.splits.depart();
  group.splits.leave(turn);
  if (!ours) return nullptr;
  const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
  return make_communicator(place_.state, std::move(ours), static_cast<int>(place));
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<State> state, std::shared_ptr<Group> group, int rank) {
  return std::make_unique<LocalCommunicator>(Place{std::move(state), std::move(group), rank});
}

}  // namespace moe::local
