#include "moe/comm/store/bounded_calls.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include "moe/base/threads.h"
#include "moe/comm/store/liveness.h"

namespace moe::store {
struct BoundedCalls::Call {
  std::function<void()> work;
  std::exception_ptr error = nullptr;
  bool done = false;
};

struct BoundedCalls::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Call>> queue;  // guarded by mutex, as all of these
  bool stopping = false, stuck = false;
  std::jthread thread;

  static void serve(const std::shared_ptr<State>& state) {
    std::unique_lock lock(state->mutex);
    while (true) {
      state->changed.wait(lock, [&] { return state->stopping || !state->queue.empty(); });
      if (state->queue.empty()) return;
      const auto call = state->queue.front();
      state->queue.pop_front();
      lock.unlock();
      try {
        call->work();
      } catch (...) {
        call->error = std::current_exception();
      }
      call->work = nullptr;
      lock.lock();
      call->done = true;
      state->changed.notify_all();
    }
  }
};

BoundedCalls::BoundedCalls() : state_(std::make_shared<State>()) {
  state_->thread = start_thread("store calls", [state = state_] { State::serve(state); });
}

BoundedCalls::~BoundedCalls() {
  bool stuck = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    stuck = state_->stuck;
  }
  state_->changed.notify_all();
  if (stuck)
    state_->thread.detach();
  else
    state_->thread.join();
}

bool BoundedCalls::run(std::function<void()> work, double timeout_s) {
  const auto call = std::make_shared<Call>(std::move(work));
  std::unique_lock lock(state_->mutex);
  if (state_->stuck) return false;
  state_->queue.push_back(call);
  state_->changed.notify_all();
  Liveness liveness(timeout_s);
  while (!liveness.timed_out()) {
    if (state_->changed.wait_for(lock, liveness.step(), [&] { return call->done; })) {
      if (call->error) std::rethrow_exception(call->error);
      return true;
    }
    liveness.note(0);
  }
  state_->stuck = true;
  state_->queue.clear();
  return false;
}

}  // namespace moe::store
