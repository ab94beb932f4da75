#pragma once
// Reads the machine of a run: the properties that decide its speed and stay the same, and the conditions that change.
#include <string>
#include <vector>

#include "moe/base/system_files.h"
#include "moe/record/record.h"

namespace moe {

/// Returns cpu, cores, memory_bytes, os, architecture; smt, numa_nodes, cpu_quota (CPU time, in cores, that the control
/// group allows), governor (of the first core), gpu, gpus and network (links that are up, "2 x 25000 Mbit/s") if the
/// system reports them; and `fingerprint`: 16 hexadecimal digits over all of these except the operating system, with
/// memory rounded to GiB because kernels reserve slightly different amounts. Machines with the same fingerprint should
/// compute equally fast. The result contains no name or address. The function does not throw for the contents of files,
/// and it neither forks nor waits.
Fields machine_of(const SystemFiles& files = SystemFiles());

/// Returns those of these that the system reports: load1 (the load average over a minute), steal_share (the share of
/// the time since the start that other guests took), pressure (the share of 10 s in which something waited for a core),
/// mhz (of the first core, now) and free_memory_bytes (memory that programs can still get). It takes no samples.
Fields conditions_of(const SystemFiles& files = SystemFiles());

// Makes the header of a run: program, machine, environment.

/// Returns the time in UTC, "2025-01-31T12:00:00Z".
std::string utc_now();

/// Returns the origin of coefficients: records, time and machine of a run.
/// "fitted from r.jsonl, measured 2026-01-31T12:00:00Z on 64 cores of CPU (machine FINGERPRINT), emulated"
/// "fitted from r.jsonl, imported 2026-01-31T12:00:00Z from nccl-tests", which says nothing about this machine
std::string fitted_from(const std::string& records, const RunHeader& run, bool emulated);

/// Returns the changing conditions of the machine and, in a process that uses GPUs, of its GPUs (gpu_watch.h).
Fields conditions_now();

/// Returns the header of a run that begins now. It contains only environment variables of an allow-list (thread counts,
/// visible devices, ranks, NCCL's and Gloo's choices): no user, host name or path.
///
/// Its digest, 16 hexadecimal digits, covers all that the records depend on, but not the conditions: the flags and
/// ranks of the question, the contents of its files, the records' format, the version of timing, the program (commit,
/// whether it was changed since, build id, compiler, libraries), the machine and the environment. A file that can't be
/// read twice (a pipe) makes the digest unique, so its run can't be resumed.
RunHeader stamp_run(const Question& question);

}  // namespace moe
