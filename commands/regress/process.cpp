#include "commands/regress/process.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/base/signals.h"

namespace moe::regress {
namespace {

using Clock = std::chrono::steady_clock;
constexpr off_t kLastLines = 4096, kMaxOutput = 64 << 20;

// Returns the next held signal; 0 if none arrives within `patience`.
int next_signal(const BlockedSignals& blocked_signals, Clock::duration patience) {
  const auto ns = std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(patience).count());
  const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
  return std::max(0, sigtimedwait(&blocked_signals.signals(), nullptr, &time));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void exec_child(const std::vector<std::string>& argv, const ProcessOptions& place, pid_t parent,
                             int output, int log, const BlockedSignals& blocked_signals) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  blocked_signals.unblock();
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(place.keeps_output ? output : nothing, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const bool there = place.folder.empty() || chdir(place.folder.c_str()) == 0;
  if (there) execvp(words.front(), words.data());
  const std::string why = (there ? argv.front() : place.folder) + ": " + std::strerror(errno) + "\n";
  [[maybe_unused]] const ssize_t said = ::write(STDERR_FILENO, why.data(), why.size());
  _exit(127);
}

// Returns the end of a file, at most `most` bytes.
std::string end_of(int file, off_t most) {
  const off_t size = lseek(file, 0, SEEK_END), from = std::max<off_t>(0, size - most);
  std::string text(static_cast<size_t>(size - from), '\0');
  const ssize_t got = pread(file, text.data(), text.size(), from);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

std::string last_line_of(int file) {
  std::string text = end_of(file, kLastLines);
  const size_t last = text.find_last_not_of(" \n\r\t");
  if (last == std::string::npos) return {};
  text.resize(last + 1);
  return text.substr(text.find_last_of("\n\r") + 1);
}

// Ends the process group by SIGTERM and, after kGrace, by SIGKILL. Returns the program's status.
int end_group(pid_t pid, const BlockedSignals& blocked_signals) {
  int status = 0;
  kill(-pid, SIGTERM);
  for (const auto deadline = Clock::now() + kTerminationGrace; Clock::now() < deadline;) {
    if (waitpid(pid, &status, WNOHANG) == pid) {
      kill(-pid, SIGKILL);  // processes of the group that outlive the program
      return status;
    }
    next_signal(blocked_signals, std::chrono::milliseconds(50));
  }
  kill(-pid, SIGKILL);
  waitpid(pid, &status, 0);
  return status;
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& argv, double timeout_s, const ProcessOptions& place) {
  const Descriptor log(memfd_create("stderr of a launch", MFD_CLOEXEC));
  const Descriptor output(memfd_create("stdout of a launch", MFD_CLOEXEC));
  const pid_t parent = getpid();
  int status = 0, ended_by = 0;
  ProcessResult end;
  {
    const BlockedSignals blocked_signals;
    const auto start = Clock::now();
    const auto deadline = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
    const pid_t pid = fork();
    require<BadInput>(pid >= 0, "{}: cannot be started: {}", argv.front(), std::strerror(errno));
    if (pid == 0) exec_child(argv, place, parent, output.number(), log.number(), blocked_signals);
    setpgid(pid, pid);  // parent and child both set it, since either may run first
    while (waitpid(pid, &status, WNOHANG) != pid) {
      const int signal = next_signal(blocked_signals, deadline - Clock::now());
      end.timed_out = signal == 0 && Clock::now() >= deadline;
      if (signal != 0 && signal != SIGCHLD) ended_by = signal;
      if (!end.timed_out && ended_by == 0) continue;
      status = end_group(pid, blocked_signals);
      break;
    }
    kill(-pid, SIGKILL);  // processes of the group that outlive the program
    end.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
  }
  if (ended_by != 0) throw Interrupted{ended_by};
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  end.last_line = last_line_of(log.number());
  if (place.keeps_output) end.output = end_of(output.number(), kMaxOutput);
  return end;
}

int run_interruptibly(const std::function<int()>& body) {
  int signal = 0;
  {
    const BlockedSignals blocked_signals;  // also holds signals that arrive between two programs
    try {
      return body();
    } catch (const Interrupted& interrupted) {
      signal = interrupted.signal;
    }
  }
  raise(signal);
  return 128 + signal;
}

std::vector<std::string> words_of(const std::string& text, const std::string& what) {
  std::vector<std::string> words;
  char quote = 0;
  bool inside = false;
  for (const char c : text) {
    if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? 0 : c;
      if (!inside) words.emplace_back();
      inside = true;
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      inside = false;
    } else {
      if (!inside) words.emplace_back();
      inside = true;
      words.back() += c;
    }
  }
  require<BadInput>(quote == 0, "{}: found {}, expected a closing {}", what, text, quote);
  return words;
}

}  // namespace moe::regress
