#pragma once
// Readers of records files.
#include <optional>
#include <string>
#include <vector>

#include "moe/record/record.h"

namespace moe {

struct Run {
  RunHeader header;
  std::vector<CaseRecord> cases;  // in file order; of a repeated key, the last case is kept at the place of the first
  bool ended = false;
  int resumed = 0;  // number of times that the run was resumed
};

/// Returns the records files of a path: the path itself if it is a file; of a folder, its files that end in .jsonl or
/// .jsonl.gz, sorted; with `below`, also those in its subfolders. Throws BadInput if there are none.
std::vector<std::string> record_files(const std::string& path, bool below);

/// Returns the runs of a file, which may be compressed by gzip, in order. An incomplete line that a killed writer left
/// is skipped if it is the last line or the next line begins or resumes a run. Throws BadInput "FILE:LINE: KEY: found
/// ..., expected ..." for any other line that is not a record.
std::vector<Run> read_runs(const std::string& path);

/// Returns the last run of a file. Throws BadInput if there is none.
Run read_last_run(const std::string& path);

/// Returns the last run for a writer that may continue it, without its cases if the run has ended; empty for a file
/// without runs. To save time, only the file's first line and the last run are read.
std::optional<Run> read_open_run(const std::string& path);

}  // namespace moe
