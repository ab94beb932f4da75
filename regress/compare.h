#pragma once
// The verb `compare`: records of BASE beside records of HEAD, measured apart, case by case.
#include <string>
#include <vector>

namespace moe::regress {

/// Where a self-test leaves what sessions of the same code differ by.
inline constexpr const char* kSelfTestRecords = "results/self-test.jsonl";

struct CompareOptions {
  std::string base, head;           // a file or a folder of *.jsonl each
  std::vector<std::string> filter;  // KEY=VALUE
  std::string by = "family";        // what groups of means share
  std::string floor;                // records of a self-test; empty: kSelfTestRecords where it is there
  bool strict = false;
  bool all = false, markdown = false, json = false;
};

/// Exit codes of `compare` beside those of every verb (0; 2, bad input or nothing compared).
enum CompareExit : int { kSlower = 1, kAmbiguous = 5 };

/// Prints the comparison. Returns 1 where a case is slower, takes more memory or is broken, else 5 where `strict` and a
/// case is ambiguous, else 0. Throws BadInput where nothing can be compared, after what was refused is printed.
int run_compare(const CompareOptions& options);

}  // namespace moe::regress
