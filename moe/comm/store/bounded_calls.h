#pragma once
// Calls that may never return, on a thread of their own, which is left behind with a call that takes too long.
#include <functional>
#include <memory>

namespace moe::store {

class BoundedCalls {
 public:
  BoundedCalls();
  /// Waits for nothing but a call that is about to return.
  ~BoundedCalls();
  BoundedCalls(const BoundedCalls&) = delete;
  BoundedCalls& operator=(const BoundedCalls&) = delete;

  /// Runs `call`, after those of other threads, and rethrows what it throws. Returns false if it has not returned
  /// within `timeout_s`; then it must own what it uses, and this and all later calls are lost. A pause of the whole
  /// process doesn't count.
  bool run(std::function<void()> call, double timeout_s);

 private:
  struct Call;
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace moe::store
