#pragma once
// The target of a measurement: an emulated cluster, this machine's threads, or the processes of a run.
#include <string>

#include "commands/shared/run_options.h"
#include "moe/measure/core_probe.h"
#include "moe/prices/profile.h"
#include "moe/record/writer.h"

namespace moe::commands {

struct Target {
  /// The profile of the cluster; if it is still to be measured, only its name, nodes and ranks.
  Profile cluster;
  bool emulated = false;  // threads emulate `cluster`
  bool measured = true;   // false: `cluster` has no times yet, so they have to be measured first
  measure::BenchRanks ranks = {};

  std::string_view backend() const { return ranks.processes ? ranks.processes->backend() : "local"; }
  /// Returns whether this process writes and prints.
  bool is_leader() const { return ranks.is_leader(); }
  /// Returns the leading process's `own` on every process. Every process of the target has to call it.
  bool leader_value(bool own) const;
  /// Returns the cluster's name and, if ranks compute on CPU cores, the threads of each rank.
  std::string place() const;
  /// Returns the beginning of names of files: the cluster's name, with "-cuda" for ranks on GPUs.
  std::string file_name() const;
  /// Opens the records on the leading process; broadcast_finished_cases() sends their content to the others. `files`:
  /// files that the run reads besides the profile.
  RecordWriter open_records(const std::string& path, const Invocation& invocation,
                            std::vector<std::string> files) const;
};

/// Returns the fields of records about a GPU that ranks use: `device`, and those of gpu_settings.
Fields gpu_fields(int local_rank);

/// Sends the list of finished cases from the leading process's writer to the other processes. Every process has to call
/// it once.
void broadcast_finished_cases(const Target& target, RecordWriter& writer);

/// Returns the ranks that the options describe. `processes`: the processes of the run; null: threads.
measure::BenchRanks ranks_of(const RunOptions& options, World* processes);

/// Returns the target of a name. `host` is this machine's threads as 2 nodes x 2 ranks, or the processes of the run
/// ("gloo-2x4"); both are unpaced and still to be measured. Any other name is a profile. Threads emulate its cluster,
/// unless it was measured on this machine's threads (`host` or `host-fitted`); for processes it gives the predictions.
/// Throws BadInput if the profile's nodes and ranks differ from those of the processes. If `ranks.threads` is 0, each
/// rank gets an equal share of the cores. Emulated ranks and ranks on GPUs have one thread and refuse more.
Target target_of(const std::string& cluster, const measure::BenchRanks& ranks);

// The memory in which ranks compute: the GPU's or the machine's.

/// Returns the free bytes of the process with the least free memory; infinity if they are unknown. Every process of the
/// ranks has to call it. Throws NoHardware if there is no GPU.
double free_bytes(const measure::BenchRanks& ranks);
inline constexpr double kUsableFreeMemoryShare = 0.8;  // the rest is for workspaces of libraries and for fragmentation

/// Returns how many of `all` ranks share the memory of this process's ranks. All threads share it; processes share a
/// machine's memory if they have the same address, and a GPU's if all run on one GPU.
int64_t ranks_sharing_memory(const measure::BenchRanks& ranks, int64_t all);

}  // namespace moe::commands
