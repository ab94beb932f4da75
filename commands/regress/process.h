#pragma once
// Runs a program and all processes that it starts.
#include <functional>
#include <string>
#include <vector>

namespace moe::regress {

struct ProcessResult {
  int code = 0;            // exit code; 128 + the signal's number if a signal ended it
  bool timed_out = false;  // the process group was killed because its time was over
  double wall_s = 0;
  std::string last_line;  // last non-empty line of stderr
  std::string output;     // stdout; empty unless ProcessOptions::keeps_output
};

struct ProcessOptions {
  std::string folder = {};  // working folder; empty: the current one
  bool keeps_output = false;
};

/// Thrown if a signal asked this process to end while a program ran.
struct Interrupted {
  int signal;
};

/// Runs `argv` to its end in a process group of its own, without input and without showing its output. A signal that
/// would end this process ends the group first, and is then thrown as Interrupted. Throws BadInput if no process can be
/// started.
ProcessResult run_process(const std::vector<std::string>& argv, double timeout_s, const ProcessOptions& place = {});

/// Calls `body`, which runs programs, and returns its result. A signal that would end this process takes effect after
/// `body` has ended and removed its temporary files.
int run_interruptibly(const std::function<int()>& body);

/// Splits a text at blanks, except inside single or double quotes. Throws BadInput "WHAT: ..." if a quote is not
/// closed.
std::vector<std::string> words_of(const std::string& text, const std::string& what);

}  // namespace moe::regress
