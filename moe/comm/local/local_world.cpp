#include "moe/comm/local/local_world.h"

#include <exception>
#include <numeric>
#include <pthread.h>
#include <thread>
#include <utility>

#include "moe/base/check.h"
#include "moe/comm/local/local_state.h"
#include "moe/device/cpu/cores.h"

namespace moe {
namespace {

std::vector<int> all_of(int ranks) {
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// The exceptions of the ranks' threads: keeps the one that came first, but any before those it caused.
class FirstCause {
 public:
  void add(std::exception_ptr error, bool consequence) {
    const std::lock_guard lock(mutex_);
    if (!first_ || (consequence_ && !consequence)) {
      first_ = std::move(error);
      consequence_ = consequence;
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
  bool consequence_ = false;
};

void run_rank(int rank, const std::function<void(int)>& body, LocalWorld::State& state, FirstCause& cause) {
  pthread_setname_np(pthread_self(), fmt::format("rank {}", rank).c_str());
  // A lane that hands over to another on its own core wakes it in microseconds, across cores in tens of them; and the
  // ranks get equal shares whatever else runs.
  keep_to_share(rank, static_cast<int>(state.world->ranks.size()));
  try {
    body(rank);
  } catch (const LocalAborted&) {
    cause.add(std::current_exception(), true);
  } catch (const std::exception& error) {
    cause.add(std::current_exception(), false);
    state.abort(fmt::format("rank {} died: {}", rank, error.what()));
  } catch (...) {
    cause.add(std::current_exception(), false);
    state.abort(fmt::format("rank {} died", rank));
  }
}

}  // namespace

LocalMeeting& LocalGroup::pair(int from, int to) {
  const std::lock_guard lock(mutex_);
  const std::vector<int> names{ranks[static_cast<size_t>(from)], ranks[static_cast<size_t>(to)]};
  const auto [found, made] = pairs_.try_emplace({from, to}, names, timeout);
  if (made && !reason_.empty()) found->second.abort(reason_);
  return found->second;
}

void LocalGroup::abort(const std::string& reason) {
  operations.abort(reason);
  splits.abort(reason);
  const std::lock_guard lock(mutex_);
  reason_ = reason;
  for (auto& [ends, meeting] : pairs_) meeting.abort(reason);
}

LocalWorld::State::State(int ranks, double timeout)
    : timeout_s(timeout), topology({1, ranks, {}, {}, 0}), world(make_group(all_of(ranks))) {}

std::shared_ptr<LocalGroup> LocalWorld::State::make_group(std::vector<int> world_ranks) {
  auto group = std::make_shared<LocalGroup>(std::move(world_ranks), timeout_s);
  const std::lock_guard lock(mutex);
  std::erase_if(groups, [](const auto& known) { return known.expired(); });
  groups.push_back(group);
  if (!reason.empty()) group->abort(reason);
  return group;
}

void LocalWorld::State::abort(const std::string& why) {
  const std::lock_guard lock(mutex);
  if (!reason.empty()) return;
  reason = why;
  for (const auto& known : groups)
    if (const auto group = known.lock()) group->abort(reason);
}

LocalWorld::LocalWorld(int ranks, double timeout_s) {
  require<BadInput>(ranks >= 1, "a world of {} ranks, expected at least 1", ranks);
  state_ = std::make_shared<State>(ranks, timeout_s);
}

LocalWorld::~LocalWorld() = default;

int LocalWorld::ranks() const { return static_cast<int>(state_->world->ranks.size()); }
std::vector<int> LocalWorld::here() const { return state_->world->ranks; }
const WorldTopology& LocalWorld::topology() const { return state_->topology; }

std::unique_ptr<Communicator> LocalWorld::communicator(int rank) {
  require<BadInput>(rank >= 0 && rank < ranks(), "rank {} of a world of {}", rank, ranks());
  return make_local_communicator(state_, state_->world, rank);
}

void LocalWorld::run(const std::function<void(int rank)>& body) {
  FirstCause cause;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks(); ++rank) threads.emplace_back([&, rank] { run_rank(rank, body, *state_, cause); });
  for (std::thread& thread : threads) thread.join();
  cause.rethrow();
}

}  // namespace moe
