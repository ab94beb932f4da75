#pragma once
// Reads what the machine of a run is: what decides its speed and stays, and what changes.
#include <string>
#include <vector>

#include "moe/base/system_files.h"
#include "moe/record/record.h"

namespace moe {

/// Returns cpu, cores, memory_bytes, os, architecture; smt, numa_nodes, cpu_quota (cores' time that the control group
/// leaves), governor (of the first core), gpu, gpus and network (links that are up, "2 x 25000 Mbit/s") where the
/// system tells them; and `fingerprint`: 16 hexadecimal digits of all of these but the operating system, with the
/// memory in whole GiB, of which each kernel keeps a little more or less. Machines of one fingerprint compute equally
/// fast, as far as this tells. No name or address is in it. The function never throws for what files hold; it forks and
/// waits for nothing.
Fields machine_of(const SystemFiles& files = SystemFiles());

/// Returns what there is of load1 (the load average over a minute), steal_share (time that other guests took, over all
/// since the machine started), pressure (the share of 10 s in which something waited for a core), mhz (of the first
/// core, now) and free_memory_bytes (what programs can still have). It samples nothing.
Fields conditions_of(const SystemFiles& files = SystemFiles());

// Makes the stamp of a run: program, machine, environment.

/// Returns the time in UTC, "2025-01-31T12:00:00Z".
std::string utc_now();

/// Returns where coefficients come from: records, time and machine of a run.
/// "fitted from r.jsonl, measured 2026-01-31T12:00:00Z on 64 cores of CPU (machine FINGERPRINT), emulated"
/// "fitted from r.jsonl, imported 2026-01-31T12:00:00Z from nccl-tests", which says nothing of this machine
std::string fitted_from(const std::string& records, const RunHeader& run, bool emulated);

/// Returns what changes about the machine and, in a process that uses GPUs, about these (gpu_watch.h).
Fields conditions_now();

/// Returns the header of a run that begins now. Of the environment only what is on the allow-list (thread counts,
/// visible devices, ranks, NCCL's and Gloo's choices) is taken: no user, host name or path.
///
/// Its digest covers all that the records depend on: the flags and ranks of the question, the contents of its files,
/// the records' format, how things are timed, the program (commit, whether it was changed since, build id, compiler,
/// libraries), the machine and the environment; not its conditions. 16 hexadecimal digits. A file that can't be read
/// twice (a pipe) makes a digest of its own: its run can't be resumed.
RunHeader stamp_run(const Question& question);

}  // namespace moe
