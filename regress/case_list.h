#pragma once
// What a gate runs: configs/ci/NAME.toml.
#include <chrono>
#include <string>
#include <vector>

namespace moe::regress {

/// A command line of a verb that writes records. Each of its cases that is ok is a case of the gate.
struct LaunchLine {
  std::string name;                // empty: the only one
  std::vector<std::string> words;  // the verb and its flags
  bool demanded = false;           // hardware that is not there fails the gate, in the place of leaving this out
};

/// A case that may be slower for a while.
struct Waiver {
  std::string name;  // of the case
  std::string reason;
  std::chrono::year_month_day until;  // the last day on which it holds
};

struct CaseList {
  std::string path;  // empty: of a command line
  std::vector<LaunchLine> launches;
  std::vector<Waiver> waivers;
};

/// Returns the launches and waivers of configs/ci/NAME.toml or a file, or the one command line. Throws BadInput
/// "FILE:LINE: KEY: found ..., expected ...", and where both or neither are given to `verb`.
CaseList case_list_of(const std::string& verb, const std::string& cases, const std::vector<std::string>& command);

}  // namespace moe::regress
