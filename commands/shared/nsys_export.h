#pragma once
// SQLite exports of Nsight Systems: kernels, and the NVTX ranges around their launches.
// https://docs.nvidia.com/nsight-systems/UserGuide/index.html, "SQLite Schema Reference".
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moe::commands {

/// The payload that NCCL 2.19 and later attach to the ranges of their calls; missing fields are unknown.
struct NcclPayload {
  std::optional<uint64_t> communicator;  // the same value on all ranks
  std::optional<uint64_t> bytes;         // "Message size" of one message
  std::optional<uint64_t> ranks;         // size of the communicator, in the calls that create one
};

/// A range that a thread pushed and popped.
struct NsysRange {
  std::string name;
  int64_t start_ns = 0, end_ns = 0;
  int64_t thread = 0;  // process and thread in one number
  int parent = -1;     // index of the range around it on its thread; -1: none
  std::optional<NcclPayload> nccl = {};
};

struct NsysKernel {
  std::string name;
  int64_t start_ns = 0, end_ns = 0;
  int64_t process = 0, device = 0, stream = 0;
  int range = -1;  // index of the innermost range around its launch; -1: none

  double seconds() const { return (static_cast<double>(end_ns) - static_cast<double>(start_ns)) * 1e-9; }
};

struct NsysExport {
  std::string path;
  std::string host;                 // empty: unknown
  std::string started;              // start of the recording, UTC, ISO 8601; empty: unknown
  std::vector<NsysRange> ranges;    // sorted by thread, then by start; a range precedes the ranges inside it
  std::vector<NsysKernel> kernels;  // sorted by start
};

/// Returns the process of a globalTid, for comparison only: all bits but the last 24, which are the thread's.
int64_t process_of_thread(int64_t thread);

/// Returns whether a file that begins like this is an SQLite database.
bool is_sqlite(const std::string& beginning);

/// Reads an export (`nsys export --type sqlite`), which may be compressed with gzip. Throws BadInput naming the file if
/// it is no database, is truncated, lacks a table or a column, or has no kernel.
NsysExport read_nsys_export(const std::string& path);

/// Returns the seconds of each occurrence of a range, by rank (process and GPU) in the order of their kernels: from the
/// start of the first kernel launched inside it on its thread to the end of the last one. Occurrences without kernels
/// are left out.
std::vector<std::vector<double>> range_seconds(const NsysExport& from, const std::string& name);

}  // namespace moe::commands
