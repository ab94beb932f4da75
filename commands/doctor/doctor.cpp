#include "commands/doctor/doctor.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <sys/timex.h>
#include <thread>
#include <unistd.h>

#include "moe/record/machine.h"

namespace moe::doctor {
namespace {

constexpr auto kSampled = std::chrono::seconds(1);

Environment environment() {
  Environment all;
  for (char** row = ::environ; row != nullptr && *row != nullptr; ++row)
    if (const std::string_view text = *row; text.find('=') != std::string_view::npos)
      all.emplace(text.substr(0, text.find('=')), text.substr(text.find('=') + 1));
  return all;
}

std::optional<ClockState> clock_state() {
  struct timex state {};  // no modes set: only reads the clock's state
  if (::adjtimex(&state) < 0) return {};
  const double unit_s = (state.status & STA_NANO) != 0 ? 1e-9 : 1e-6;
  return ClockState{(state.status & STA_UNSYNC) == 0, static_cast<double>(state.offset) * unit_s,
                    static_cast<double>(state.maxerror) * 1e-6};
}

/// Sorts areas, and findings of an area, by severity, the worst first; equal ones keep their order.
void sort(Findings& findings) {
  std::vector<std::pair<std::string, Level>> areas;
  const auto row_of = [&](const std::string& area) {
    return std::ranges::find(areas, area, &std::pair<std::string, Level>::first);
  };
  for (const Finding& one : findings) {
    const auto known = row_of(one.area);
    if (known == areas.end())
      areas.emplace_back(one.area, one.level);
    else
      known->second = std::max(known->second, one.level);
  }
  std::ranges::stable_sort(areas, std::greater{}, &std::pair<std::string, Level>::second);
  std::ranges::stable_sort(findings, [&](const Finding& a, const Finding& b) {
    return a.area == b.area ? a.level > b.level : row_of(a.area) < row_of(b.area);
  });
}

}  // namespace

Report examine(const ExaminationInputs& sources) {
  Report report{machine_of(sources.files), conditions_of(sources.files), {}};
  const auto add = [&](Findings found) {
    for (Finding& one : found) report.findings.push_back(std::move(one));
  };
  add(load_findings(sources.files, sources.wait));
  add(cpu_findings(sources.files));
  add(memory_findings(sources.files));
  add(gpu_findings(sources.nvml));
  add(network_findings(sources.files));
  add(variable_findings(sources.environment));
  add(clock_findings(sources.files, sources.clock));
  sort(report.findings);
  return report;
}

bool run_doctor(const DoctorOptions& options) {
  const auto nvml = open_nvml();
  const Report report =
      examine({SystemFiles(), environment(), clock_state(), nvml.get(), [] { std::this_thread::sleep_for(kSampled); }});
  fmt::print("{}", options.json ? json_of(report) : text_of(report, options.all));
  return !options.strict ||
         std::ranges::none_of(report.findings, [](const Finding& one) { return one.level == Level::warn; });
}

}  // namespace moe::doctor
