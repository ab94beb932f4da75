#pragma once
// The verb `compare`: records of BASE beside records of HEAD, measured apart, case by case.
#include <string>
#include <vector>

namespace moe::regress {

struct CompareOptions {
  std::string base, head;           // a file or a folder of *.jsonl each
  std::vector<std::string> filter;  // KEY=VALUE
  std::string by = "family";        // what groups of means share
  std::string floor;                // records of a self-test; empty: where it leaves them
  bool strict = false;
  bool all = false, markdown = false, json = false;
};

/// Prints the comparison. Returns 1 where a case is slower, takes more memory or is broken, else 5 where `strict` and a
/// case is ambiguous, else 0. Throws BadInput where nothing can be compared, after what was refused is printed.
int run_compare(const CompareOptions& options);

}  // namespace moe::regress
