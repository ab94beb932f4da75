#pragma once
// Parts of the answer's text.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tuner/answer/answer.h"

namespace moe::tuner {

/// How much of an answer is printed.
struct AnswerDetail {
  bool all = true;  // shows every reason, every note on a price, and the table of shapes
  int rows = 3;     // number of rows besides baselines and trials; unless `all`, rows with equal times count as one
  bool baselines = true;  // false: baselines are only shown with the frameworks that run them
  bool blanks = true;     // blank lines between parts
  bool brief = false;     // names fewer kinds of tasks, and does not count hidden schedules
  bool tight = false;     // omits information that another line or the long answer has
  size_t plans = 6;       // number of frameworks' plans, if tight
};

/// Returns "LABEL  item; item" in lines of at most 120 columns; an item that is longer has a line of its own. Lines
/// after the first are indented to the first item.
std::string packed_lines(std::string_view label, const std::vector<std::string>& items);

/// Returns "7.02 s", "630 ms", "1.25 ms", "87.2 us".
std::string three_digits(double seconds);

/// Returns ", kept as Megatron-Core does", which names the framework whose rules of memory apply; empty for moetune's
/// own rules.
std::string memory_rules_text(Trainer trainer);

/// The mark behind the recommended schedule's name in a table whose rows are sorted by time.
inline constexpr std::string_view kUseMark = " (use)";

/// The indentation of lines below a label.
inline constexpr std::string_view kIndent = "       ";

/// Returns the reason why `use` is preferred to `faster`, an equally fast plan whose name is `words`: `use` takes
/// `share` more time, but less memory or fewer chunks.
std::vector<std::string> preference_items(const RankedSchedule& use, const RankedSchedule& faster,
                                          const std::string& words, double share);

/// Returns {"DP 2 EP 4 PP 2 VP 2", "4 of 1 1f1b, ZeRO 1"}: the content of describe_shape() in two parts, without groups
/// of one rank. VP: number of virtual stages.
std::pair<std::string, std::string> short_shape(const ModelShape& model);

/// Returns the table of the ranking and, unless the detail is tight, the number of rows left out.
std::string ranking_text(const Answer& answer, const AnswerDetail& detail);

}  // namespace moe::tuner
