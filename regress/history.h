#pragma once
// The verb `history`: records of many commits as series, and the changes in them.
#include <string>
#include <vector>

namespace moe::regress {

struct HistoryOptions {
  std::string folder;               // any *.jsonl below it, every run of each
  std::vector<std::string> filter;  // KEY=VALUE
  std::string by = "family";        // what the cases of a series share
  std::string plot;                 // picture FILE, .svg or .png; empty: none
  bool json = false;
};

/// Says how many runs a series has at least for changes to be looked for in it.
inline constexpr int kLeastRuns = 8;

/// Prints every series, its length and last value, and the changes that plots/history.py finds, run by the Python that
/// MOETUNE_PYTHON names, else python3. Returns 2, or 77 where that Python has no ruptures, behind the script's own
/// line. Throws BadInput where the folder has no measured case, std::runtime_error where the script fails.
int run_history(const HistoryOptions& options);

}  // namespace moe::regress
