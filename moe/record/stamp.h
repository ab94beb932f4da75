#pragma once
// Makes the stamp of a run: program, machine, environment.
#include <string>
#include <vector>

#include "moe/record/record.h"

namespace moe {

/// Returns the time in UTC, "2025-01-31T12:00:00Z".
std::string utc_now();

/// Returns where coefficients come from: records, time and machine (machine.h) of a run.
/// "fitted from r.jsonl, measured 2026-01-31T12:00:00Z on 64 cores of CPU (machine FINGERPRINT), emulated"
/// "fitted from r.jsonl, imported 2026-01-31T12:00:00Z from nccl-tests", which says nothing of this machine
std::string fitted_from(const std::string& records, const RunHeader& run, bool emulated);

/// Returns what changes about the machine (machine.h) and, in a process that uses GPUs, about these (gpu_state.h).
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
