#pragma once
// The verb `self-test`: how often the gate's rule is wrong on this machine, and what it can see.
#include <string>
#include <vector>

#include "moe/record/record.h"

namespace moe::regress {

struct SelfTestOptions {
  std::string base;                  // a tree with a built moetune; empty: this program's
  std::string cases;                 // configs/ci/, or a file; empty: `command`
  std::vector<std::string> command;  // a verb that writes records, with its flags
  std::string launcher;
  double delta_percent = 3;
  double timeout_s = 0;      // of a launch; 0: by the first one
  int gates = 10;            // of equal programs, for real; each has six pairs, and fresh ones of its suspects
  int64_t resamples = 2000;  // gates made of the launches recorded, a row
  bool simulate = false;     // no launches: the rule beside others' on made-up machines
  uint64_t seed = 1;
  std::string out;  // records; empty: results/self-test.jsonl
  bool json = false;
  Asked asked;
};

/// Returns 0; throws as ab does.
int run_self_test(const SelfTestOptions& options);

}  // namespace moe::regress
