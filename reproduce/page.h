#pragma once
// docs/reproduction.md: every table from print alone, with each example assumption file that is for it, and the audit.
#include <string>
#include <vector>

#include "reproduce/report.h"

namespace moe::reproduce {

/// Returns every table from print alone, then with each example assumption file that is for it; the audit last.
std::vector<Report> all_reports();

/// Returns one row a comparison: how many numbers the paper prints, how many are computed, and how close the convention
/// comes that comes closest (median over its numbers of |ours / paper - 1|).
TextTable summary_of(const std::vector<Report>& reports);

/// Returns the page: the same text on every machine.
std::string page_of(const std::vector<Report>& reports);

}  // namespace moe::reproduce
