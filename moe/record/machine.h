#pragma once
// The description of the machine of a run: constant properties that determine its speed, and conditions that change.
#include <string>
#include <vector>

#include "moe/base/system_files.h"
#include "moe/record/record.h"

namespace moe {

/// Returns the properties of the machine: cpu, cores, memory_bytes, os, architecture; if the system reports them, smt,
/// numa_nodes, cpu_quota (cores' worth of CPU time that the control group allows), governor (of the first core), gpu,
/// gpus and network (links that are up, "2 x 25000 Mbit/s"); and `fingerprint`: 16 hexadecimal digits, a digest of all
/// of these except the operating system, with memory rounded to GiB because kernels reserve slightly different amounts.
/// Machines with the same fingerprint should be equally fast. The result contains no host name or address. The function
/// never throws for the contents of files, and neither forks nor waits.
Fields machine_of(const SystemFiles& files = SystemFiles());

/// Returns the current conditions, as far as the system reports them: load1 (load average over one minute), steal_share
/// (share of the CPU time since boot that other guests of the host took), pressure (share of the last 10 s in which
/// some task waited for a core), mhz (of the first core) and free_memory_bytes (memory that programs can still
/// allocate).
Fields conditions_of(const SystemFiles& files = SystemFiles());

// The header of a run: program, machine, environment.

/// Returns the time in UTC, "2025-01-31T12:00:00Z".
std::string utc_now();

/// Returns a text on the origin of fitted coefficients: records, time and machine of the run. Examples: "fitted from
/// r.jsonl, measured 2026-01-31T12:00:00Z on 64 cores of CPU (machine FINGERPRINT), emulated" "fitted from r.jsonl,
/// imported 2026-01-31T12:00:00Z from nccl-tests", without a machine, because another one measured
std::string fitted_from(const std::string& records, const RunHeader& run, bool emulated);

/// Returns conditions_of() and, in a process that uses GPUs, gpu_state() (gpu_watch.h).
Fields conditions_now();

/// Returns the header of a run that begins now. Of the environment it contains only variables of an allow-list (thread
/// counts, visible devices, ranks, settings of NCCL and Gloo), so no user, host name or path.
///
/// Its digest, 16 hexadecimal digits, covers everything that records depend on: the question's flags and ranks, the
/// contents of its files, the records' format, the version of timing, the program (commit, uncommitted changes, build
/// id, compiler, libraries), the machine and the environment; conditions are excluded. A file that can't be read twice
/// (a pipe) makes the digest unique, so the run can't be resumed.
RunHeader stamp_run(const RunInputs& inputs);

}  // namespace moe
