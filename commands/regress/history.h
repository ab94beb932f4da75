#pragma once
// The verb `history`: records of many commits as series, and the changes in them.
#include <string>
#include <vector>

#include "commands/regress/compare.h"

namespace moe::regress {

struct HistoryOptions {
  std::string folder;               // any *.jsonl below it, every run of each
  std::vector<std::string> filter;  // KEY=VALUE
  std::string by = "family";        // what the cases of a series share
  std::string plot;                 // picture FILE, .svg or .png; empty: none
  bool json = false;
};

/// How many runs a series has at least for changes to be looked for in it.
inline constexpr int kLeastRuns = 8;

/// Prints every series, its length and last value, and the changes that plots/history.py finds, run by the Python that
/// MOETUNE_PYTHON names, else python3. Returns 2, or 77 where that Python has no ruptures, behind the script's own
/// line. Throws BadInput where the folder has no measured case, std::runtime_error where the script fails.
int run_history(const HistoryOptions& options);

// What cases took over many commits: one series a machine and family.

/// One run of a series.
struct SeriesPoint {
  std::string started;  // UTC, ISO 8601
  std::string commit;
  bool dirty = false;  // the tree had changes that the commit lacks
  double value_s = 0;  // geometric mean of the series' cases
  int cases = 0;       // of the series, that this run has
};

struct Series {
  std::string machine, group;
  int cases = 0;
  std::vector<SeriesPoint> points;  // by time, then commit
};

/// Returns the series of the ok cases that `filter` keeps, of each machine (machine_difference, the ranks and the
/// measurement) and group (`by`, see value_of) apart; cases of another dtype, backend or algorithm are other cases.
///
/// Runs need not have the same cases: log seconds are fitted by a level of each case plus a value of each run, least
/// squares (the time-product dummy index of price statistics), so that a case that comes or goes moves no value. Where
/// all runs have all cases, values are the geometric means. Runs that no case joins are series apart.
/// Throws BadInput where no case has `by`, or a KEY of the filter.
std::vector<Series> series_of(const std::vector<Run>& runs, CaseFilter& filter, const std::string& by);

}  // namespace moe::regress
