#pragma once
// A comparison as text for the terminal or as Markdown, and as JSON.
#include <string>

#include "moe/base/json.h"
#include "regress/compare_cases.h"

namespace moe::regress {

struct ReportLook {
  bool all = false;       // cases that are the same too, and every name
  bool markdown = false;  // for the comment of a pull request
};

/// Says what is broken first, then shows a table of cases, one of means, and what was not compared.
std::string comparison_text(const Side& base, const Side& head, const Comparison& comparison, ReportLook look);
/// Returns base, head: path, runs[] = {file, started, commit, dirty, ended}; broken[], refused[] = {key, reason};
/// cases[] = {key, group, metric, base, head, ratio, floor, verdict}; groups[] = {group, metric, cases, ratio};
/// only_in_base, only_in_head: keys. The base and head of a time are in seconds, of memory in bytes.
Json to_json(const Side& base, const Side& head, const Comparison& comparison);

}  // namespace moe::regress
