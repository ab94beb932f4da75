#pragma once
// What a gate found, as text, as Markdown, as JSON.
#include <optional>
#include <string>
#include <vector>

#include "regress/case_list.h"
#include "regress/rule.h"

namespace moe::regress {

struct GatedCase {
  std::string name;
  Judged judged;
  double base_s = 0, head_s = 0;          // medians over the launches
  int pairs = 0;                          // of the stage that decided
  double base_bytes = 0, head_bytes = 0;  // peak of the tensors; 0: not counted
  std::optional<Waiver> waiver = {};      // that holds today
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
