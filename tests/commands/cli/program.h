#pragma once
// Runs one of our executables and takes what it printed.
#include <string>
#include <vector>

namespace moe {

struct Printed {
  int exit_code = -1;  // 128 + the signal, if one ended it
  std::string out, err;
};

/// Runs the program with `arguments` as they are, no shell in between, in `folder`.
Printed run_program(const std::string& program, const std::vector<std::string>& arguments, const std::string& folder);

}  // namespace moe
