#pragma once
// The signals that ask a process to end, for processes that start others and must end them too.
#include <chrono>
#include <csignal>

namespace moe {

/// How long a process may take to end after a signal asks it to; then it is killed.
inline constexpr std::chrono::seconds kGrace{3};

/// Blocks SIGCHLD, SIGINT, SIGTERM and SIGHUP in this thread while the object lives; they stay pending until they are
/// read. Ignored signals (as nohup sets them) stay ignored, because blocked ones would become pending. SIGCHLD is never
/// left ignored.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  /// Unblocks the signals, which a child process needs.
  void release() const { sigprocmask(SIG_UNBLOCK, &held_, nullptr); }
  const sigset_t& set() const { return held_; }

 private:
  sigset_t held_{}, before_{};
};

}  // namespace moe
