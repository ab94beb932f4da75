#include <cmath>
#include <fmt/format.h>

#include "doctor/probes.h"
#include "moe/base/units.h"

namespace moe::doctor {
namespace {

constexpr double kFarOffS = 1e-3;  // a node that is that far off: its times can't be laid beside another's

constexpr Area kClock{"clock"};

}  // namespace

Findings clock_findings(const SystemFiles& files, const std::optional<ClockState>& clock) {
  Findings all;
  const auto source = files.text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (source && (*source == "hpet" || *source == "acpi_pm"))
    all.push_back(kClock(Level::warn, "clock source " + *source, "reading the time takes microseconds, not tens of ns",
                         "cat /sys/devices/system/clocksource/clocksource0/available_clocksource"));
  else if (source && !source->empty())
    all.push_back(kClock(Level::ok, "clock source " + *source, "reading the time takes tens of ns"));
  if (!clock) return all;
  const std::string off = human_seconds(std::abs(clock->offset_s));
  if (!clock->synchronised)
    all.push_back(kClock(Level::note, "time is not synchronised", "timelines of several machines can't be compared",
                         "sudo systemctl start chrony"));
  else if (std::abs(clock->offset_s) > kFarOffS)
    all.push_back(kClock(Level::note, off + " off the time server", "timelines of several machines shift by that",
                         "chronyc tracking"));
  else
    all.push_back(kClock(Level::ok, fmt::format("synchronised, {} off", off),
                         "at most " + human_seconds(clock->most_error_s) + " by the kernel's own estimate"));
  return all;
}

}  // namespace moe::doctor
