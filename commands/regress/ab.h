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
  std::string base, head;              // trees with a built moetune; empty: this program's, of head: base's; folders
                                       // in which commands of a metric run; empty: this one, of head: base
  std::string base_flags, head_flags;  // behind the command's own
  std::string cases;                   // configs/ci/, or a file; empty: `command`
  std::vector<std::string> command;    // a verb that writes records, with its flags; with `metric` any command
  std::string metric, unit;            // how what the command prints is read (output_metric.h); empty: by its records
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

/// What a gate found, as text, as Markdown, as JSON.
struct GatedCase {
  std::string name;
  Judged judged;
  double base_s = 0, head_s = 0;          // medians over the launches
  int pairs = 0;                          // of the stage that decided
  double base_bytes = 0, head_bytes = 0;  // peak of the tensors; 0: not counted
  std::optional<Waiver> waiver = {};      // the waiver that is valid today; none: not waived
  Verdict memory() const;                 // more than 1 % more is slower: it has no noise
  /// Returns whether time or memory got worse, whatever is waived.
  bool slower() const { return judged.verdict == Verdict::slower || memory() == Verdict::slower; }
};

struct AbResults {
  std::string base, head;  // the programs, with their flags
  Rule rule;
  std::string delta_from;  // what decided delta
  std::vector<GatedCase> cases;
  std::vector<std::string> only_in_head, absent;
  std::vector<std::pair<std::string, std::string>> broken;  // cases that the head does not run any more, and why
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
