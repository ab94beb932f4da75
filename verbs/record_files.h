#pragma once
// Files of records, and of what modelbench printed.
#include <string>
#include <vector>

#include "moe/record/reader.h"

namespace moe::verbs {

/// Holds the last run of a file that has a case.
struct FileRun {
  std::string file;
  Run run;
  size_t earlier = 0;  // runs with cases that stand before it in the file
};

/// Reads each file, packed by gzip or not. A name that ends in .json or .json.gz holds what `modelbench --json`
/// printed. Throws BadInput "FILE:LINE: ..." as read_runs does, and for a file in which no run has a case.
std::vector<FileRun> read_files(const std::vector<std::string>& files);

}  // namespace moe::verbs
