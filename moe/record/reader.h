#pragma once
// Reads records back.
#include <optional>
#include <string>
#include <vector>

#include "moe/record/record.h"

namespace moe {

struct Run {
  RunHeader header;
  std::vector<CaseRecord> cases;  // in file order; of a key that occurs again the last one, at its first place
  bool ended = false;
  int resumed = 0;  // times
};

/// Returns the files that a path names: a file itself, or the files in a folder that end in .jsonl, packed or not,
/// sorted; with `below` those in its folders too. Throws BadInput where there is none.
std::vector<std::string> record_files(const std::string& path, bool below);

/// Returns the runs of a file, packed by gzip or not, in order. A line that a killed writer left torn is passed over:
/// the last one, or one that a new run or a resume mark follows. Throws BadInput "FILE:LINE: KEY: found ..., expected
/// ..." for any other line that is no record.
std::vector<Run> read_runs(const std::string& path);

/// Returns the last run of a file. Throws BadInput where there is none.
Run read_last_run(const std::string& path);

/// Returns the last run as one who would go on with it needs it: without its cases where it has ended, and whatever
/// stands before it is not looked at but for the file's first line. Returns none for a file without a run.
std::optional<Run> read_open_run(const std::string& path);

}  // namespace moe
