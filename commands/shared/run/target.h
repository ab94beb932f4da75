#pragma once
// Where a verb measures: an emulated cluster, this machine's threads, or the processes of a run.
#include <string>

#include "commands/shared/run_options.h"
#include "moe/measure/core_probe.h"
#include "moe/prices/profile.h"
#include "moe/record/writer.h"

namespace moe::commands {

struct Target {
  /// The profile of an emulated cluster, or of one that was measured before; else name and shape alone.
  Profile cluster;
  bool emulated = false;  // paced by `cluster`, over threads
  bool measured = true;   // `cluster` has its times; else they are to be measured first
  measure::BenchRanks ranks = {};

  std::string_view backend() const { return ranks.processes ? ranks.processes->backend() : "local"; }
  /// Returns whether this process writes and prints.
  bool is_leader() const { return ranks.is_leader(); }
  /// Returns the leading process's `own`; every process of the target calls it.
  bool leader_says(bool own) const;
  /// Returns the cluster's name, with the threads of each rank where they compute.
  std::string place() const;
  /// Returns what its files are named after: the cluster, and the device where that is a GPU.
  std::string file_name() const;
  /// Opens the records on the process that leads; share_done tells the others. `files`: read beside the profile.
  RecordWriter open_records(const std::string& path, const Asked& asked, std::vector<std::string> files) const;
};

/// Returns what records say of a GPU that ranks use: `device`, and what gpu_settings says.
Fields gpu_fields(int local_rank);

/// Copies what the leading process's writer has done to every other's. Every process calls it, once.
void share_done(const Target& target, RecordWriter& writer);

/// Returns the ranks that a verb was told of; `processes`: of the run, or none.
measure::BenchRanks ranks_of(const RunOptions& options, World* processes);

/// Returns the target that a name stands for. `host` is 2 nodes x 2 ranks of threads, or the processes as they are
/// ("gloo-2x4"), unpaced and to be measured. Any other name is a profile: threads emulate it, unless it is named `host`
/// or `host-fitted`; processes are predicted by it. Throws BadInput where such a profile is not of as many nodes and
/// ranks as the processes. `ranks.threads` 0 stands for an equal share of the cores, and for 1 where ranks are emulated
/// or on GPUs, which refuse more.
Target target_of(const std::string& cluster, const measure::BenchRanks& ranks);

// The memory that ranks compute in: a GPU's or the machine's.

/// Returns its free bytes, where there are fewest of all processes; infinity where nobody knows. Every process of the
/// ranks calls it. Throws NoHardware for GPUs that are not there.
double free_bytes(const measure::BenchRanks& ranks);
inline constexpr double kShareOfFree = 0.8;  // the rest is for workspaces of libraries, and what is in pieces

/// Returns how many of `all` ranks share it with this process's: threads one GPU or machine, processes the machine,
/// where they have one address.
int64_t sharers(const measure::BenchRanks& ranks, int64_t all);

}  // namespace moe::commands
