#pragma once
// The verb `history`: records of many commits as series, and the changes in them.
#include <string>
#include <vector>

#include "commands/regress/compare.h"

namespace moe::regress {

struct HistoryOptions {
  std::string folder;               // folder whose *.jsonl are read, with all subfolders and runs
  std::vector<std::string> filter;  // items "KEY=VALUE" (CaseFilter)
  std::string by = "family";        // name of the value that all cases of a series share
  std::string plot;                 // picture FILE, .svg or .png; empty: none
  bool json = false;
};

/// Least number of runs of a series in which changes are searched.
inline constexpr int kMinRuns = 8;

/// Prints every series with its length, its last value and its changes. The script plots/history.py finds the changes;
/// it runs in the Python of MOETUNE_PYTHON, else in python3. Returns 0, or the script's exit code: 2 for bad input, 77
/// if Python or its package ruptures is missing. Throws BadInput if the folder has no measured case, and
/// std::runtime_error if the script fails otherwise.
int run_history(const HistoryOptions& options);

// Times of cases over many commits: one series for each machine and family.

/// One run of a series.
struct SeriesPoint {
  std::string started;  // UTC, ISO 8601
  std::string commit;
  bool dirty = false;  // the checkout had uncommitted changes
  double value_s = 0;  // geometric mean of the series' cases
  int cases = 0;       // number of the series' cases in this run
};

struct Series {
  std::string machine, group;
  int cases = 0;
  std::vector<SeriesPoint> points;  // sorted by time, then by commit
};

/// Returns the series of the ok cases that `filter` keeps: one for each machine (measured_difference) and group (value
/// `by`, see value_of). Cases with different dtypes, backends or algorithms are different cases.
///
/// Runs need not have the same cases. The log seconds of a case in a run are fitted by a level of the case plus a value
/// of the run, by least squares (the time-product dummy index of price statistics), so a case that is added or removed
/// does not change the values. If all runs have all cases, the values are geometric means. Runs without a common case,
/// directly or through other runs, are separate series. Throws BadInput if no case has `by` or a KEY of the filter.
std::vector<Series> series_of(const std::vector<Run>& runs, CaseFilter& filter, const std::string& by);

}  // namespace moe::regress
