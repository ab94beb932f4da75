#pragma once
// The verb `ab`: whether a program, or a set of flags, is slower than another, by launches in pairs.
#include <optional>
#include <string>
#include <vector>

#include "commands/regress/launches.h"
#include "commands/regress/rule.h"
#include "moe/record/record.h"

namespace moe::regress {

struct AbOptions {
  std::string base, head;              // checkouts with a built moetune or, with `metric`, folders in which the command
                                       // runs; empty base: this program and folder; empty head: the same as base
  std::string base_flags, head_flags;  // flags that are appended to the command for one side
  std::string cases;                   // name of a list in configs/ci/, or a file; empty: `command` is run
  std::vector<std::string> command;    // a verb that writes records, with its flags; with `metric` any command
  std::string metric, unit;  // how to read times in the command's output (output_metric.h); empty: from records
  std::string launcher;      // command that starts the program: "mpirun -np 2"
  std::string floor;         // file with records of self-test; empty: results/self-test.jsonl if it exists
  double delta_percent = 3;
  double timeout_s = 0;  // timeout of a launch; 0: a multiple of the first launch's time
  uint64_t seed = 1;
  bool strict = false;
  std::string out;  // file of the records; empty: results/ab.jsonl
  bool markdown = false, json = false;
  Invocation invocation;
};

/// Returns the exit code: 0 if no case is slower, 1 if one is, 4 if the head no longer runs a case, 5 if `strict` and a
/// case is ambiguous, 77 if the hardware of all launches is missing. Throws RankFailure if a launch fails or hangs, and
/// BadInput if nothing was compared.
int run_ab(const AbOptions& options);

/// One case of a gate, with its verdicts on time and memory.
struct GatedCase {
  std::string name;
  CaseJudgement judged;
  double base_s = 0, head_s = 0;          // medians over the launches
  int pairs = 0;                          // number of pairs in the stage that decided
  double base_bytes = 0, head_bytes = 0;  // peak memory of the tensors; 0: not counted
  std::optional<Waiver> waiver = {};      // the waiver that is valid today; none: not waived
  Verdict memory() const;                 // Verdict::slower if the head takes over 1 % more memory
  /// Returns whether time or memory got worse, even if the case is waived.
  bool slower() const { return judged.verdict == Verdict::slower || memory() == Verdict::slower; }
};

struct AbResults {
  std::string base, head;  // the programs, with their flags
  Rule rule;
  std::string delta_from;  // origin of delta, for the text; empty: the flag's value
  std::vector<GatedCase> cases;
  std::vector<std::string> only_in_head, absent;
  std::vector<std::pair<std::string, std::string>> broken;  // cases that the head no longer runs, with the reason
  std::vector<std::string> remarks;                         // on waivers, and on cases that were not judged
  int pairs = 0;
  double wall_s = 0;
  std::string records;
  int code(bool strict) const;
};

std::string text_of(const AbResults& results);
std::string markdown_of(const AbResults& results);
std::string json_of(const AbResults& results);

}  // namespace moe::regress
