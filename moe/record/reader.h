#pragma once
// Reads records back.
#include <optional>
#include <string>
#include <vector>

#include "moe/record/record.h"

namespace moe {

struct Run {
  RunHeader header;
  std::vector<CaseRecord> cases;  // in file order; a key that is repeated keeps its first place and its last value
  bool ended = false;
  int resumed = 0;  // how often the run was resumed
};

/// Returns the files of a path: the file itself, or the files in a folder that end in .jsonl or .jsonl.gz, sorted; with
/// `below`, also the files in its subfolders. Throws BadInput if there is none.
std::vector<std::string> record_files(const std::string& path, bool below);

/// Returns the runs of a file, gzip or not, in order. A torn line that a killed writer left is skipped: it is the last
/// line, or the next line begins a run or is a resume mark. Throws BadInput "FILE:LINE: KEY: found ..., expected ..."
/// for any other line that is not a record.
std::vector<Run> read_runs(const std::string& path);

/// Returns the last run of a file. Throws BadInput if there is none.
Run read_last_run(const std::string& path);

/// Returns the last run for a writer that continues it: without its cases if the run has ended. Of the lines before the
/// run, only the first line of the file is read. Returns none for a file without a run.
std::optional<Run> read_open_run(const std::string& path);

}  // namespace moe
