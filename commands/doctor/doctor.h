#pragma once
// The verb `doctor`: conditions that make measurements on this machine noisy or wrong. It only reads.
#include "commands/doctor/gpus.h"
#include "commands/doctor/probes.h"
#include "moe/record/record.h"

namespace moe::doctor {

struct DoctorOptions {
  bool all = false;     // also shows findings that are ok
  bool strict = false;  // exit code kDoubtful if there is a warning
  bool json = false;
};

/// All inputs of the examination, so that a test can replace them.
struct ExaminationInputs {
  SystemFiles files;
  Environment environment;
  std::optional<ClockState> clock;
  const Nvml* nvml = nullptr;
  std::function<void()> wait;  // called while load is sampled
};

struct Report {
  Fields machine, conditions;  // moe/record/machine.h
  Findings findings;           // by area; areas with warnings come first, and in an area the worst findings
};

Report examine(const ExaminationInputs& sources);

/// Returns a table, then the commands. Unless `all`, findings that are ok are only counted.
std::string text_of(const Report& report, bool all);
/// Returns one document: fingerprint, machine, conditions, warnings, findings.
std::string json_of(const Report& report);

/// Examines this machine for about a second and prints the findings. Returns false if `strict` is set and a finding is
/// a warning.
bool run_doctor(const DoctorOptions& options);

}  // namespace moe::doctor
