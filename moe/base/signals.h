#pragma once
// The signals that ask a process to end, for processes that start others and must end them too.
#include <chrono>
#include <csignal>

namespace moe {

/// How long a process may take to end after a signal asks it to; then it is killed.
inline constexpr std::chrono::seconds kTerminationGrace{3};

/// Blocks SIGCHLD, SIGINT, SIGTERM and SIGHUP in this thread while the object lives; they stay pending until they are
/// read. Ignored signals (as nohup sets them) stay ignored, because blocked ones would become pending. SIGCHLD is never
/// left ignored.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals() { sigprocmask(SIG_SETMASK, &previous_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  /// Unblocks the signals, which a child process needs.
  void unblock() const { sigprocmask(SIG_UNBLOCK, &blocked_, nullptr); }
  const sigset_t& signals() const { return blocked_; }

 private:
  sigset_t blocked_{}, previous_{};
};

}  // namespace moe
