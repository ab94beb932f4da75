#pragma once
// What `microbench` found, as text and as JSON.
#include <string>
#include <vector>

#include "moe/base/device_kind.h"
#include "moe/exec/overhead.h"
#include "moe/record/record.h"

namespace moe::microbench {

/// What tasks and hand-overs cost an executor with so many ranks in a process.
struct MeasuredOverhead {
  int ranks = 1;
  DeviceKind device = DeviceKind::cpu;
  Overhead overhead;
};

struct MicrobenchResults {
  std::string cluster, place;  // Target's
  bool emulated = false;
  std::string backend, records_path;
  bool checked = true;              // wrong elements were looked for
  std::vector<CaseRecord> records;  // of ops, slowdowns and overlaps, as the tables list them
  std::vector<MeasuredOverhead> overheads;
};

/// Shows collectives as nccl-tests prints them, then GEMMs and modules, how lanes slow each other, and overheads.
std::string text_of(const MicrobenchResults& results);
/// Returns one document: cluster, backend, records, `ops` and `overhead`.
std::string json_of(const MicrobenchResults& results);

/// Sorts records, which were measured in turns, by series and ascending size; those of no op come last, in their order.
void sort_by_series(std::vector<CaseRecord>& records);

}  // namespace moe::microbench
