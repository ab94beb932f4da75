#include "moe/comm/local/local_world.h"

#include <exception>
#include <thread>
#include <utility>

#include "moe/base/threads.h"
#include "moe/comm/local/detail/state.h"
#include "moe/device/cpu/cores.h"

namespace moe {
namespace {

/// Keeps the first exception of the ranks' threads, but prefers a rank's own exception to those that it caused.
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

void run_rank(int rank, const std::function<void(int)>& body, local::State& state, FirstCause& cause) {
  // Waking a lane takes microseconds on the same core, and tens of microseconds across cores. Shares of cores also give
  // the ranks equal time, whatever else runs.
  cpu::restrict_to_share(rank, static_cast<int>(state.world->ranks.size()));
  try {
    body(rank);
  } catch (const local::Aborted&) {
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

LocalWorld::LocalWorld(int ranks, double timeout_s) {
  require<BadInput>(ranks >= 1, "a world of {} ranks, expected at least 1", ranks);
  state_ = std::make_shared<local::State>(ranks, timeout_s);
}

LocalWorld::~LocalWorld() = default;

int LocalWorld::ranks() const { return static_cast<int>(state_->world->ranks.size()); }
std::vector<int> LocalWorld::local_ranks() const { return state_->world->ranks; }
const WorldTopology& LocalWorld::topology() const { return state_->topology; }

std::unique_ptr<Communicator> LocalWorld::communicator(int rank) {
  require<BadInput>(rank >= 0 && rank < ranks(), "rank {} of a world of {}", rank, ranks());
  return local::make_communicator(state_, state_->world, rank);
}

void LocalWorld::run(const std::function<void(int rank)>& body) {
  FirstCause cause;
  std::vector<std::jthread> threads;
  try {
    for (int rank = 0; rank < ranks(); ++rank)
      threads.push_back(
          start_thread(fmt::format("rank {}", rank), [&, rank] { run_rank(rank, body, *state_, cause); }));
  } catch (const std::exception& error) {  // a rank could not start, and running ranks wait for it
    state_->abort(error.what());
    throw;
  }
  threads.clear();
  cause.rethrow();
}

}  // namespace moe
