#include "commands/cli/launch.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fmt/core.h>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands/cli/errors.h"
#include "moe/base/check.h"
#include "moe/base/launch_board.h"
#include "moe/base/log.h"
#include "moe/base/signals.h"

namespace moe::cli {
namespace {

using Clock = std::chrono::steady_clock;
// Time added to the time-out, in which launch finds the rank that caused a failure, and that rank cleans up.
constexpr std::chrono::seconds kPatience{6};

struct Child {
  pid_t pid = 0;
  bool ended = false;
  std::optional<Clock::time_point> stopped_at = {};
};

// Returns the signal that ended a process, or that it caught to end in order; 0 if none did.
int signal_of(int status) {
  constexpr int kOfSignals = 128;  // added to the signal's number for the exit code, as in shells
  if (WIFSIGNALED(status)) return WTERMSIG(status);
  return WIFEXITED(status) && WEXITSTATUS(status) > kOfSignals ? WEXITSTATUS(status) - kOfSignals : 0;
}

class Ranks {
 public:
  Ranks(const LaunchOptions& options, const std::string& program)
      : options_(options),
        program_(program),
        timeout_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.timeout_s))) {
    signals_ = signalfd(-1, &blocked_signals_.signals(), SFD_CLOEXEC);
  }
  ~Ranks() {
    for (const Child& child : children_)
      if (!child.ended) kill(child.pid, SIGKILL), waitpid(child.pid, nullptr, 0);
    ::close(signals_);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int run() {
    for (int rank = 0; rank < options_.ranks; ++rank) children_.push_back({start(rank)});
    while (open() > 0) {
      wait_for_news();
      check_children();
      report_stopped_children();
      if (Clock::now() >= deadline_ || only_stopped()) end(SIGKILL);
    }
    return ended_by_ ? 128 + ended_by_ : code_;
  }

 private:
  pid_t start(int rank) {
    const pid_t parent = getpid(), pid = fork();
    require<BadInput>(pid >= 0, "launch: cannot start rank {} of {}: {}", rank, options_.ranks, std::strerror(errno));
    if (pid > 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // the rank is killed when this process ends
    if (getppid() != parent) _exit(kRankFailure);
    blocked_signals_.unblock();
    for (const char* here : {"RANK", "LOCAL_RANK"}) setenv(here, fmt::format("{}", rank).c_str(), 1);
    for (const char* all : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"})
      setenv(all, fmt::format("{}", options_.ranks).c_str(), 1);
    setenv(LaunchBoard::kVariable, fmt::format("{}", board_.descriptor()).c_str(), 1);
    for (const char* of_others : {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}) unsetenv(of_others);
    std::vector<char*> argv{const_cast<char*>(program_.c_str())};
    for (const std::string& word : options_.command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(program_.c_str(), argv.data());
    log_error(fmt::format("{}: {}", program_, std::strerror(errno)));
    _exit(kBadInput);
  }

  size_t open() const {
    return static_cast<size_t>(std::ranges::count_if(children_, [](const Child& child) { return !child.ended; }));
  }
  // Returns whether only stopped ranks are left, which would not react to a time-out.
  bool only_stopped() const {
    return failed_ &&
           std::ranges::all_of(children_, [](const Child& child) { return child.ended || child.stopped_at; });
  }

  // Returns the time at which a stopped rank counts as failed, after which the others are ended.
  Clock::time_point give_up_time(const Child& child) const {
    return child.stopped_at ? *child.stopped_at + timeout_ : Clock::time_point::max();
  }
  void report_stopped_children() {
    for (size_t rank = 0; rank < children_.size(); ++rank)
      if (Clock::now() >= give_up_time(children_[rank]))
        board_.post_failure(fmt::format("rank {} has been stopped for {:.1f} s", rank, options_.timeout_s));
  }

  void wait_for_news() {
    pollfd news{signals_, POLLIN, 0};
    int ms = -1;
    Clock::time_point next = deadline_;
    if (!board_.failure())
      for (const Child& child : children_) next = std::min(next, give_up_time(child));
    if (next != Clock::time_point::max()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now());
      ms = static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, 1000000));
    }
    if (poll(&news, 1, ms) <= 0) return;
    signalfd_siginfo info{};
    if (read(signals_, &info, sizeof info) != sizeof info || info.ssi_signo == SIGCHLD) return;
    const bool again = ended_by_ != 0;
    if (!again) ended_by_ = static_cast<int>(info.ssi_signo);
    end(SIGTERM);
    // After the first signal, a training finishes its step and saves a checkpoint.
    deadline_ = std::min(
        deadline_, Clock::now() + (again ? kTerminationGrace : std::max<Clock::duration>(kTerminationGrace, timeout_)));
  }

  void check_children() {
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      int status = 0;
      while (!child.ended && waitpid(child.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == child.pid) {
        child.stopped_at = WIFSTOPPED(status) ? std::optional(Clock::now()) : std::nullopt;
        if (!WIFEXITED(status) && !WIFSIGNALED(status)) continue;
        child.ended = true;
        take(static_cast<int>(rank), status);
      }
    }
  }

  void take(int rank, int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == kOk) return;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kDoubtful) {  // the rank finished its work
      if (!failed_) code_ = kDoubtful;
      return;
    }
    const int signal = signal_of(status);
    const std::string what = signal > 0
                                 ? fmt::format("rank {} was ended by signal {} ({})", rank, signal, strsignal(signal))
                                 : fmt::format("rank {} ended with code {}", rank, WEXITSTATUS(status));
    board_.post_failure(what);
    if (WIFSIGNALED(status) && ended_by_ == 0 && !killing_) log_error(what);
    // An exit code that gives a cause takes precedence over those of ranks that only lost another rank.
    const int said = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (!failed_) code_ = kRankFailure;
    if (code_ == kRankFailure && (said == kBadInput || said == kWrongResult || said == kNoHardware)) code_ = said;
    if (!failed_) deadline_ = std::min(deadline_, Clock::now() + timeout_ + kPatience);
    failed_ = true;
  }

  void end(int signal) {
    killing_ = true;
    for (const Child& child : children_) {
      if (child.ended) continue;
      kill(child.pid, signal);
      kill(child.pid, SIGCONT);  // a stopped process only reacts to this signal and to SIGKILL
    }
  }

  const LaunchOptions& options_;
  const std::string& program_;
  const Clock::duration timeout_;
  LaunchBoard board_;
  BlockedSignals blocked_signals_;
  int signals_ = -1;
  std::vector<Child> children_;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool failed_ = false, killing_ = false;
  int code_ = kOk, ended_by_ = 0;
};

}  // namespace

int run_launch(const LaunchOptions& options, const std::string& program) { return Ranks(options, program).run(); }

}  // namespace moe::cli
