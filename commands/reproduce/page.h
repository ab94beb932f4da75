#pragma once
// Pages docs/reproduction.md and docs/reproduction/: every table, alone and with each of its example files of
// assumptions, and the audit.
#include <filesystem>
#include <string>
#include <vector>

#include "commands/reproduce/report.h"

namespace moe::reproduce {

/// Returns every table without assumptions, then with each example assumption file for it; the audit comes last.
std::vector<Report> all_reports();

/// Returns one row for each comparison: how many numbers the paper prints, how many are computed, and the error of the
/// closest convention (median over its numbers of |ours / paper - 1|).
TextTable summary_of(const std::vector<Report>& reports);

/// A page in Markdown with its file.
struct MarkdownPage {
  std::filesystem::path path;
  std::string text;
};

/// Returns the summary for `file`, then a page for each paper in `folder`, with links between them. The text is the
/// same on every machine.
std::vector<MarkdownPage> pages_of(const std::vector<Report>& reports, const std::filesystem::path& file,
                                   const std::filesystem::path& folder);

// The beginning of docs/reproduction.md: one page for readers of the papers.

/// Returns what is compared, a table with one to three numbers of each paper, and what agrees and what does not. Throws
/// WrongResult naming a number that no report has.
std::string first_page(const std::vector<Report>& reports);

}  // namespace moe::reproduce
