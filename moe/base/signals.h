#pragma once
// The signals by which a process is asked to end, for those that start others and must end them too.
#include <chrono>
#include <csignal>

namespace moe {

/// How long a process that was asked to end may take before it is killed.
inline constexpr std::chrono::seconds kGrace{3};

/// Blocks SIGCHLD, SIGINT, SIGTERM and SIGHUP in this thread while the object lives; the signals wait to be asked for.
/// Signals that are ignored stay so, as nohup leaves them: blocked, they would be held too. SIGCHLD alone is never left
/// ignored.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  /// Lets the signals through again, as a child needs it.
  void release() const { sigprocmask(SIG_UNBLOCK, &held_, nullptr); }
  const sigset_t& set() const { return held_; }

 private:
  sigset_t held_{}, before_{};
};

}  // namespace moe
