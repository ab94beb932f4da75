#pragma once
// Files of records, packed or not, and of what modelbench printed.
#include <string>
#include <vector>

#include "moe/record/reader.h"

namespace moe {

/// The last run of a file that has a case.
struct FileRun {
  std::string file;
  Run run;
  size_t earlier = 0;  // runs with cases that stand before it in the file
};

/// Reads each file; a name that ends in .gz is unpacked by gzip, one that ends in .json or .json.gz holds what
/// `modelbench --json` printed. Throws BadInput "FILE:LINE: ..." as read_runs does, for a file that gzip can't unpack,
/// and for one in which no run has a case.
std::vector<FileRun> read_files(const std::vector<std::string>& files);

}  // namespace moe
