#pragma once
// The verb `report`: records -> one HTML page that opens offline.
#include <string>
#include <vector>

#include "commands/report/columns.h"
#include "commands/shared/record_files.h"
#include "moe/prices/profile.h"
#include "moe/record/reader.h"
#include "moe/shape/shape.h"

namespace moe::report {

struct ReportOptions {
  std::vector<std::string> records;  // files of JSON Lines, plain or gzipped
  std::string cluster;               // profile that prices the replays; empty: see replay_profile
  int timelines = 8;                 // layers that the page replays, at most
  std::string out = "report.html";
};

/// Writes the page as a whole and says on stdout what it shows. Throws BadInput for a file that is none of records, and
/// where no file has a case.
int run_report(const ReportOptions& options);

// What prices the replays of a run's layers, and their shapes, as the records have them.

/// Returns the profile of that name or file; where it is empty, the one that the run's own operations fit, else that of
/// its cluster. Throws BadInput where there is none, or the operations make no profile.
Profile replay_profile(const std::string& name_or_file, const Run& run, const std::string& cluster);

/// Returns the profile without start-up times: what is left of a task's seconds grows with its size.
Profile without_starts(Profile profile);

// What a reader of the figures has to know first.

/// Returns [{"run", "level", "text", "cases"}], of each run the gravest first: results that are wrong, then what
/// failed, what broke the rules of measuring, what prices badly, what was not planned, and how the run was made.
/// `cases` names some.
Json warnings_of(const std::vector<commands::FileRun>& files);

}  // namespace moe::report
