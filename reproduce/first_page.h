#pragma once
// What docs/reproduction.md opens with: one page for readers of the papers.
#include <string>
#include <vector>

#include "reproduce/report.h"

namespace moe::reproduce {

/// Says what is compared, a table of one to three numbers a paper, what agrees and what does not. Throws WrongResult
/// naming the number that no report has.
std::string first_page(const std::vector<Report>& reports);

}  // namespace moe::reproduce
