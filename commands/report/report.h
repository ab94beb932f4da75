#pragma once
// The verb `report`: turns records into one HTML page that opens offline.
#include <string>
#include <vector>

#include "commands/report/columns.h"
#include "commands/shared/record_files.h"
#include "moe/prices/profile.h"
#include "moe/record/reader.h"
#include "moe/shape/shape.h"

namespace moe::report {

struct ReportOptions {
  std::vector<std::string> records;  // JSON Lines files, plain or gzipped
  std::string cluster;               // profile that prices the replays; empty: see replay_profile
  int timelines = 8;                 // largest number of layers that the page replays
  std::string out = "report.html";
};

/// Writes the page atomically and reports on stdout what it shows. Throws BadInput if a file has no records, and if no
/// file has a case.
int run_report(const ReportOptions& options);

// The prices of a run's layers for their replays, and the layers' shapes in the records.

/// Returns the profile of that name or file. If the name is empty: the profile fitted to the run's own operations, or
/// if it has none, the profile of `cluster`. Throws BadInput if there is none, or if the operations cannot be fitted.
Profile replay_profile(const std::string& name_or_file, const Run& run, const std::string& cluster);

/// Returns the profile without start-up times, so that a task's seconds are proportional to its size.
Profile without_startup_seconds(Profile profile);

// Warnings shown at the top of the page.

/// Returns [{"run", "level", "text", "cases"}], for each run the most severe first: wrong results, failures, violated
/// rules of measuring, bad prices, schedules without a plan, and how the run was made. `cases` names some of the
/// cases.
Json warnings_of(const std::vector<commands::FileRun>& files);

}  // namespace moe::report
