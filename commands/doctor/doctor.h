#pragma once
// The verb `doctor`: what makes this machine noisy, or wrong, to measure on. It reads and changes nothing.
#include "commands/doctor/gpus.h"
#include "commands/doctor/probes.h"
#include "moe/record/record.h"

namespace moe::doctor {

struct DoctorOptions {
  bool all = false;     // what is fine, too
  bool strict = false;  // a warning fails
  bool json = false;
};

/// Everything that is looked at, so that a test can make it up.
struct Sources {
  SystemFiles files;
  Environment environment;
  std::optional<ClockState> clock;
  const Nvml* nvml = nullptr;
  std::function<void()> wait;  // while load is sampled
};

struct Report {
  Fields machine, conditions;  // moe/record/machine.h
  Findings findings;           // by area; areas with warnings stand first, in each the worst
};

Report examine(const Sources& sources);

/// Returns a table, then the commands. Unless `all`, findings that are ok are only counted.
std::string text_of(const Report& report, bool all);
/// Returns one document: fingerprint, machine, conditions, warnings, findings.
std::string json_of(const Report& report);

/// Looks at this machine for about a second and prints what it finds. Returns false where `strict` is set and a finding
/// warns.
bool run_doctor(const DoctorOptions& options);

}  // namespace moe::doctor
