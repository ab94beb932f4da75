#pragma once
// docs/reproduction.md and docs/reproduction/: every table from print alone, with each example assumption file that is
// for it, and the audit.
#include <filesystem>
#include <string>
#include <vector>

#include "commands/reproduce/report.h"

namespace moe::reproduce {

/// Returns every table from print alone, then with each example assumption file that is for it; the audit last.
std::vector<Report> all_reports();

/// Returns one row a comparison: how many numbers the paper prints, how many are computed, and how close the convention
/// comes that comes closest (median over its numbers of |ours / paper - 1|).
TextTable summary_of(const std::vector<Report>& reports);

/// A page in Markdown and the file that it belongs to.
struct MarkdownPage {
  std::filesystem::path path;
  std::string text;
};

/// Returns the summary, for `file`, then a page per paper, for `folder`, with links between them. The text is the same
/// on every machine.
std::vector<MarkdownPage> pages_of(const std::vector<Report>& reports, const std::filesystem::path& file,
                                   const std::filesystem::path& folder);

// What docs/reproduction.md opens with: one page for readers of the papers.

/// Returns what is compared, a table of one to three numbers a paper, what agrees and what does not. Throws WrongResult
/// naming the number that no report has.
std::string first_page(const std::vector<Report>& reports);

}  // namespace moe::reproduce
