#pragma once
// One start of a program, with all that it starts in turn.
#include <functional>
#include <string>
#include <vector>

namespace moe::regress {

struct ProcessEnd {
  int code = 0;            // exit code; 128 + the signal's number if a signal ended it
  bool timed_out = false;  // whether it was killed after the timeout, with its whole process group
  double wall_s = 0;
  std::string last_line;  // last non-empty line of stderr
  std::string output;     // stdout; empty unless ProcessPlace::keeps_output
};

struct ProcessPlace {
  std::string folder = {};  // in which it runs; empty: this one
  bool keeps_output = false;
};

/// Thrown if a signal asked this process to end while a program ran.
struct Interrupted {
  int signal;
};

/// Runs `argv` to its end in a process group of its own, without input; what it prints is not shown. A signal that
/// would end this process ends the group first, and is thrown as Interrupted. Throws BadInput where nothing can be
/// started.
ProcessEnd run_process(const std::vector<std::string>& argv, double timeout_s, const ProcessPlace& place = {});

/// Returns what `body` returns, which runs programs. A signal that would end this process does so only when `body` has
/// ended and removed its temporary files.
int run_interruptibly(const std::function<int()>& body);

/// Divides a text at blanks; quotes, single or double, keep words together. Throws BadInput "WHAT: ..." where one is
/// left open.
std::vector<std::string> words_of(const std::string& text, const std::string& what);

}  // namespace moe::regress
