#pragma once
// The verb `report`: records -> one HTML page that opens offline.
#include <string>
#include <vector>

namespace moe::report {

struct ReportOptions {
  std::vector<std::string> records;  // files of JSON Lines, plain or gzipped
  std::string cluster;               // profile that prices the replays; empty: see replay_profile (profiles.h)
  int timelines = 8;                 // layers that the page replays, at most
  std::string out = "report.html";
};

/// Writes the page as a whole and says on stdout what it shows. Throws BadInput for a file that is none of records, and
/// where no file has a case.
int run_report(const ReportOptions& options);

}  // namespace moe::report
