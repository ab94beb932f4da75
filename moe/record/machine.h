#pragma once
// Reads what the machine of a run is: what decides its speed and stays, and what changes.
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

}  // namespace moe
