#pragma once
// What the reproduction of one table or figure says: the paper's numbers beside ours, the conventions that ours rest
// on, and what no print decides. One report becomes text, Markdown, JSON and records.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/json.h"
#include "moe/record/record.h"

namespace moe::reproduce {

/// What a number counts: its name in records, and how people read it.
struct Quantity {
  std::string_view name;  // in records and JSON, where seconds are seconds
  std::string_view unit;  // in tables
  double scale;           // from the first to the second
  int digits;
};
inline constexpr Quantity kMilliseconds{"time_s", "ms", 1e3, 2};
inline constexpr Quantity kSpeedup{"speedup", "x", 1, 3};
inline constexpr Quantity kLayerCount{"layers", "layers", 1, 0};
inline constexpr Quantity kShare{"share", "share", 1, 3};

/// One number of a paper beside ours, under one convention.
struct Figure {
  std::vector<std::string> labels;    // one a label column of its comparison
  std::string convention;             // a column of the comparison; empty: there is only one
  std::optional<double> paper, ours;  // in the first unit of the quantity; empty: not printed, not computable
};

struct Comparison {
  std::string caption;
  std::vector<std::string> label_names = {};  // {"testbed", "schedule"}
  Quantity quantity = kSpeedup;
  std::vector<Figure> figures = {};
  bool drawn = true;  // false: shown by a table of its own; the figures are for JSON and records alone
};

/// A table that is no comparison of single numbers.
struct TextTable {
  std::string caption;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

struct Report {
  std::string key, title, source;
  std::string assuming = {};  // name of the assumptions that it rests on; empty: on print alone
  std::vector<Comparison> comparisons = {};
  std::vector<TextTable> tables = {};
  std::vector<std::string> conventions = {};     // every choice that our numbers rest on
  std::vector<std::string> assumed = {};         // rows that came in by --assume
  std::vector<std::string> shows = {};           // what follows, each with its evidence
  std::vector<std::string> unexplained = {};     // differences without one
  Json runs = {};                                // of whole runs: one object each, beside the figures; null: none
  std::vector<std::string> not_computable = {};  // "what: NAMES of what no paper prints"
};

/// Returns "fsmoe-fig6", or "fsmoe-fig6, assuming fsmoe-models".
std::string name_of(const Report& report);

enum class ReportStyle { terminal, markdown };

/// Returns lines of at most 118 columns but for tables, which are as wide as their cells.
std::string report_text(const Report& report, ReportStyle style);

/// Returns a report's comparisons and tables alone.
std::string tables_text(const Report& report, ReportStyle style);

/// Returns "-1.3 %": ours against the paper's; "-" where either is missing or the paper's is 0.
std::string difference(std::optional<double> ours, std::optional<double> paper);

inline constexpr int kColumns = 118;
/// Returns prose broken at blanks: the first line begins with `first`, the others with as many blanks.
std::string wrapped(std::string_view text, std::string_view first, size_t columns = kColumns);

/// Returns the rows of a comparison: labels, paper, then ours and its difference under each convention.
TextTable drawn(const Comparison& comparison);

// A report for programs: JSON, and records that plots are drawn from.

/// Returns {table, title, source, figures[] = {comparison, labels..., convention, quantity, paper, ours, difference},
/// ...}.
Json to_json(const Report& report);

/// Returns one record a figure, key "reproduce/TABLE/...": parameters say what and under which convention; `prediction`
/// has our number, `summary` the paper's, under the quantity's name. A figure without ours is `unsupported`.
std::vector<CaseRecord> records_of(const Report& report);

}  // namespace moe::reproduce
