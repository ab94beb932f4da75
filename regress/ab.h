#pragma once
// The verb `ab`: whether a program, or a set of flags, is slower than another, by launches in pairs.
#include <string>
#include <vector>

#include "moe/record/record.h"

namespace moe::regress {

struct AbOptions {
  std::string base, head;              // trees with a built moetune; empty: this program's, of head: base's
  std::string base_flags, head_flags;  // behind the command's own
  std::string cases;                   // configs/ci/, or a file; empty: `command`
  std::vector<std::string> command;    // a verb that writes records, with its flags
  std::string launcher;                // words before the program: "mpirun -np 2"
  std::string floor;                   // records of self-test; empty: results/self-test.jsonl, where it is
  double delta_percent = 3;
  double timeout_s = 0;  // of a launch; 0: by the first one
  uint64_t seed = 1;
  bool strict = false;
  std::string out;  // records; empty: results/ab.jsonl
  bool markdown = false, json = false;
  Asked asked;
};

/// Returns 0 where no case is slower, 1 where one is, 5 where `strict` and one is ambiguous, 77 where the hardware of
/// all launches is missing. Throws RankFailure where a launch fails or hangs, BadInput where nothing was compared.
int run_ab(const AbOptions& options);

}  // namespace moe::regress
