#pragma once
// The result of reproducing one table or figure: the paper's numbers beside ours, the conventions behind ours, and open
// questions. One report becomes text, Markdown, JSON and records.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/json.h"
#include "moe/record/record.h"

namespace moe::reproduce {

/// The quantity of a number, with its name in records and its unit in tables.
struct Quantity {
  std::string_view name;  // name in records and JSON, which use seconds for times
  std::string_view unit;  // unit in tables
  double scale;           // factor from the first to the second
  int digits;
};
inline constexpr Quantity kMilliseconds{"time_s", "ms", 1e3, 2};
inline constexpr Quantity kSpeedup{"speedup", "x", 1, 3};
inline constexpr Quantity kLayerCount{"layers", "layers", 1, 0};
inline constexpr Quantity kShare{"share", "share", 1, 3};

/// One number of a paper beside ours, under one convention.
struct Figure {
  std::vector<std::string> labels;    // one for each label column of its comparison
  std::string convention;             // a column of the comparison; empty: the only one
  std::optional<double> paper, ours;  // in the records' unit; none: not printed, not computable
};

struct Comparison {
  std::string caption;
  std::vector<std::string> label_names = {};  // {"testbed", "schedule"}
  Quantity quantity = kSpeedup;
  std::vector<Figure> figures = {};
  bool comparison_table = true;  // false: another table shows it; the figures are only for JSON and records
};

/// A table that does not compare single numbers.
struct TextTable {
  std::string caption;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

struct Report {
  std::string key, title, source;
  std::string assuming = {};  // name of the assumptions; empty: only printed numbers
  std::vector<Comparison> comparisons = {};
  std::vector<TextTable> tables = {};
  std::vector<std::string> conventions = {};     // all choices behind our numbers
  std::vector<std::string> assumed = {};         // rows that --assume added
  std::vector<std::string> shows = {};           // findings, each with its evidence
  std::vector<std::string> unexplained = {};     // differences without an explanation
  Json runs = {};                                // one object for each whole run, beside the figures; null: none
  std::vector<std::string> not_computable = {};  // "what: NAMES of the values that no paper prints"
};

/// Returns the report's name: "fsmoe-fig6", or "fsmoe-fig6, assuming fsmoe-models".
std::string name_of(const Report& report);

enum class ReportStyle { terminal, markdown };

/// Returns lines of at most 118 columns, except tables, which are as wide as their cells.
std::string report_text(const Report& report, ReportStyle style);

/// Returns only the comparisons and tables of a report.
std::string tables_text(const Report& report, ReportStyle style);

/// Returns the difference of ours to the paper's, "-1.3 %"; "-" if either is missing or the paper's is 0.
std::string difference(std::optional<double> ours, std::optional<double> paper);

inline constexpr int kColumns = 118;
/// Returns text wrapped at blanks: the first line begins with `first`, the others with as many blanks.
std::string wrapped(std::string_view text, std::string_view first, size_t columns = kColumns);

/// Returns the rows of a comparison: labels, paper, then ours and its difference under each convention.
TextTable comparison_table(const Comparison& comparison);

// A report for programs: JSON, and records for plots.

/// Returns {table, title, source, figures[] = {comparison, labels..., convention, quantity, paper, ours, difference},
/// ...}.
Json to_json(const Report& report);

/// Returns one record per figure, key "reproduce/TABLE/...": parameters are the labels and the convention; `prediction`
/// has our number, `summary` the paper's, under the quantity's name. A figure without ours is `unsupported`.
std::vector<CaseRecord> records_of(const Report& report);

}  // namespace moe::reproduce
