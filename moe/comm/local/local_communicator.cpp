#include <algorithm>
#include <numeric>
#include <utility>

#include "moe/base/check.h"
#include "moe/comm/arguments.h"
#include "moe/comm/local/local_state.h"

namespace moe {
namespace {

struct Place {
  std::shared_ptr<LocalWorld::State> state;
  std::shared_ptr<LocalGroup> group;
  int rank = 0;

  int world_rank() const { return group->ranks[static_cast<size_t>(rank)]; }
};

/// One operation on its way through a stream.
class Operation {
 public:
  /// `member` of what `meeting` is of: all of the group, or two.
  Operation(Place place, LocalMeeting& meeting, int member, LocalOffer offer)
      : place_(std::move(place)), meeting_(meeting), member_(member), offer_(std::move(offer)) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// The other ranks would wait for what the stream skipped.
  ~Operation() {
    if (ran_) return;
    try {
      place_.state->abort(
          fmt::format("rank {} skipped {}, since its earlier work failed", place_.world_rank(), describe(offer_)));
    } catch (...) {  // out of memory for the message: the timeout remains
    }
  }

  void run(Stream& stream) {
    ran_ = true;
    offer_.began_s = now_s();
    stream.calls_at_once() ? meet_at_issue(stream) : meet_on_stream();
  }

 private:
  void meet_on_stream() {
    const LocalMeeting::Turn turn = meeting_.meet(member_, offer_);
    move_on_host(moves_of(meeting_.offers(), member_));
    meeting_.depart();
    const bool in_time = hold(turn);
    if (!in_time && offer_.pace.overruns) offer_.pace.overruns->fetch_add(1, std::memory_order_relaxed);
    meeting_.leave(turn);
  }

  /// The ranks' threads meet while they issue, since only an event that was recorded can be waited for. An event isn't
  /// recorded again before all have waited for it: `ready` since all have departed, `done` since all have met again.
  void meet_at_issue(Stream& stream) {
    LocalMarks& ours = meeting_.marks(member_);
    if (!ours.ready) ours = {stream.make_event(), stream.make_event(), stream.make_event()};
    stream.record(*ours.ready);
    const LocalMeeting::Turn turn = meeting_.meet(member_, offer_);
    wait_for_others(stream, &LocalMarks::ready);
    const double at_least_s = longest_pace(meeting_.offers());
    if (at_least_s > 0) stream.mark(*ours.began);
    stream.move(moves_of(meeting_.offers(), member_));
    if (at_least_s > 0) stream.hold(*ours.began, {.at_least_s = at_least_s, .overruns = offer_.pace.overruns});
    stream.record(*ours.done);
    meeting_.depart();
    meeting_.leave(turn);
    wait_for_others(stream, &LocalMarks::done);
  }

  void wait_for_others(Stream& stream, std::unique_ptr<Event> LocalMarks::*which) const {
    for (int other = 0; other < meeting_.members(); ++other)
      if (other != member_) stream.wait(*(meeting_.marks(other).*which));
  }

  static double longest_pace(const std::vector<const LocalOffer*>& offers) {
    double longest = 0;
    for (const LocalOffer* offer : offers) longest = std::max(longest, offer->pace.at_least_s);
    return longest;
  }

  /// Waits for the end of its pace; returns whether that was still to come.
  bool hold(const LocalMeeting::Turn& turn) const {
    if (turn.running) return offer_.pace.pacer->finish(*turn.running);
    const bool in_time = turn.ends_s == 0 || now_s() <= turn.ends_s;
    sleep_until_s(turn.ends_s);
    return in_time;
  }

  const Place place_;
  LocalMeeting& meeting_;  // the group's
  const int member_;
  LocalOffer offer_;
  bool ran_ = false;
};

class LocalCommunicator final : public Communicator {
 public:
  explicit LocalCommunicator(Place place) : place_(std::move(place)) {}

  int rank() const override { return place_.rank; }
  int size() const override { return static_cast<int>(place_.group->ranks.size()); }

  void alltoall(const void* send, void* receive, int64_t block_bytes, CommCall call) override {
    launch({.op = LocalOp::alltoall, .send = send, .receive = receive, .count = block_bytes}, call);
  }

  void alltoallv(const void* send, std::vector<int64_t> send_bytes, void* receive, std::vector<int64_t> receive_bytes,
                 CommCall call) override {
    require_alltoallv(*this, send_bytes, receive_bytes, call);
    launch({.op = LocalOp::alltoallv,
            .send = send,
            .receive = receive,
            .send_bytes = std::move(send_bytes),
            .receive_bytes = std::move(receive_bytes)},
           call);
  }

  void allgather(const void* send, void* receive, int64_t block_bytes, CommCall call) override {
    launch({.op = LocalOp::allgather, .send = send, .receive = receive, .count = block_bytes}, call);
  }

  void allgatherv(const void* send, void* receive, std::vector<int64_t> block_bytes, CommCall call) override {
    require_blocks(*this, "allgatherv", block_bytes, call);
    launch({.op = LocalOp::allgatherv, .send = send, .receive = receive, .blocks = std::move(block_bytes)}, call);
  }

  void reducescatterv(const void* send, void* receive, std::vector<int64_t> blocks, DType dtype,
                      CommCall call) override {
    require_blocks(*this, "reducescatterv", blocks, call);
    launch(
        {.op = LocalOp::reducescatterv, .send = send, .receive = receive, .dtype = dtype, .blocks = std::move(blocks)},
        call);
  }

  void reducescatter(const void* send, void* receive, int64_t block, DType dtype, CommCall call) override {
    launch({.op = LocalOp::reducescatter, .send = send, .receive = receive, .count = block, .dtype = dtype}, call);
  }

  void allreduce(void* data, int64_t elements, DType dtype, CommCall call) override {
    launch({.op = LocalOp::allreduce, .send = data, .receive = data, .count = elements, .dtype = dtype}, call);
  }

  void broadcast(void* data, int64_t bytes, int root, CommCall call) override {
    require_root(*this, root, call);
    launch({.op = LocalOp::broadcast, .send = data, .receive = data, .count = bytes, .root = root}, call);
  }

  void barrier(CommCall call) override { launch({.op = LocalOp::barrier}, call); }

  void send(const void* data, int64_t bytes, int peer, CommCall call) override {
    require_peer(*this, "send", peer, call);
    LocalMeeting& meeting = place_.group->pair(place_.rank, peer);
    launch({.op = LocalOp::send, .send = data, .count = bytes}, call, meeting, 0);
  }

  void receive(void* data, int64_t bytes, int peer, CommCall call) override {
    require_peer(*this, "receive", peer, call);
    LocalMeeting& meeting = place_.group->pair(peer, place_.rank);
    launch({.op = LocalOp::receive, .receive = data, .count = bytes}, call, meeting, 1);
  }

  std::unique_ptr<Communicator> split(int colour, int key) override;

  void abort(const std::string& reason) override {
    place_.state->abort(fmt::format("rank {} aborted: {}", place_.world_rank(), reason));
  }

 private:
  void launch(LocalOffer offer, CommCall& call) {
    launch(std::move(offer), call, place_.group->operations, place_.rank);
  }

  void launch(LocalOffer offer, CommCall& call, LocalMeeting& meeting, int member) {
    require<BadInput>(offer.count >= 0, "{} '{}': a size of {}", name_of(offer.op), call.task, offer.count);
    require<Unsupported>(!call.pace.pacer || !call.stream.calls_at_once(),
                         "{} '{}': tasks that slow each other down are paced on the CPU alone", name_of(offer.op),
                         call.task);
    offer.task = call.task;
    offer.pace = call.pace;
    auto operation = std::make_shared<Operation>(place_, meeting, member, std::move(offer));
    call.stream.launch([operation = std::move(operation), stream = &call.stream](void*) { operation->run(*stream); });
  }

  const Place place_;
};

/// The members of `rank`'s colour in their new order, as ranks of the old group.
std::vector<int> same_colour(const std::vector<const LocalOffer*>& offers, int rank) {
  const auto offer = [&](int member) -> const LocalOffer& { return *offers[static_cast<size_t>(member)]; };
  std::vector<int> members;
  for (int member = 0; member < static_cast<int>(offers.size()); ++member)
    if (offer(member).colour == offer(rank).colour) members.push_back(member);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return offer(a).key < offer(b).key; });
  return members;
}

std::unique_ptr<Communicator> LocalCommunicator::split(int colour, int key) {
  const int rank = place_.rank;
  LocalGroup& group = *place_.group;
  const LocalOffer offer{.op = LocalOp::split, .colour = colour, .key = key};
  LocalMeeting::Turn turn = group.splits.meet(rank, offer);
  const std::vector<int> members = same_colour(group.splits.offers(), rank);
  const auto leader = static_cast<size_t>(members.front());
  if (colour >= 0 && members.front() == rank) {
    std::vector<int> world_ranks;
    for (const int member : members) world_ranks.push_back(group.ranks[static_cast<size_t>(member)]);
    group.children[leader] = place_.state->make_group(std::move(world_ranks));
  }
  group.splits.depart();
  group.splits.leave(turn);

  // Second meeting: nobody starts another split before all have taken their group.
  std::shared_ptr<LocalGroup> ours = colour < 0 ? nullptr : group.children[leader];
  turn = group.splits.meet(rank, offer);
  if (members.front() == rank) group.children[leader].reset();
  group.splits.depart();
  group.splits.leave(turn);
  if (!ours) return nullptr;
  const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
  return make_local_communicator(place_.state, std::move(ours), static_cast<int>(place));
}

}  // namespace

std::unique_ptr<Communicator> make_local_communicator(std::shared_ptr<LocalWorld::State> state,
                                                      std::shared_ptr<LocalGroup> group, int rank) {
  return std::make_unique<LocalCommunicator>(Place{std::move(state), std::move(group), rank});
}

}  // namespace moe
