#pragma once
// The results of `microbench`, as text and as JSON.
#include <string>
#include <vector>

#include "moe/base/device_kind.h"
#include "moe/exec/overhead.h"
#include "moe/record/record.h"

namespace moe::microbench {

/// The overhead of a task and of a hand-over in an executor with `ranks` ranks in a process.
struct MeasuredOverhead {
  int ranks = 1;
  DeviceKind device = DeviceKind::cpu;
  Overhead overhead;
};

struct MicrobenchResults {
  std::string cluster, place;  // place: that of the Target
  bool emulated = false;
  std::string backend, records_path;
  bool checked = true;              // true: the elements of results were compared with the expected ones
  std::vector<CaseRecord> records;  // of ops, slowdowns and overlaps, in the order of the tables
  std::vector<MeasuredOverhead> overheads;
};

/// Shows collectives as nccl-tests prints them, then GEMMs and modules, slowdowns between lanes, and overheads.
std::string text_of(const MicrobenchResults& results);
/// Returns one document: cluster, backend, records, `ops` and `overhead`.
std::string json_of(const MicrobenchResults& results);

/// Sorts records, which were measured in turns, by series and ascending size. Records without an op come last and keep
/// their order.
void sort_by_series(std::vector<CaseRecord>& records);

}  // namespace moe::microbench
