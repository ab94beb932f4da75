#include "commands/doctor/gpus.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "moe/base/config_files.h"
#include "moe/base/units.h"

namespace moe::doctor {
namespace {

constexpr unsigned kHotCelsius = 80;  // degrees Celsius; data-centre GPUs slow down from about 85

constexpr Area kGpu{"gpu"};

Findings clocks(const Nvml& nvml, NvmlDevice gpu) {
  const auto mhz = query_nvml(nvml.clock, gpu, kNvmlSmClock);
  const auto most = query_nvml(nvml.max_clock, gpu, kNvmlSmClock);
  const auto reasons = query_nvml(nvml.reasons, gpu).value_or(0);
  if (!mhz || !most) return {};
  const std::string at = fmt::format("{} of {} MHz", *mhz, *most);
  struct Row {
    unsigned long long bits;
    Level level;
    const char *why, *meaning, *command;
  };
  constexpr std::array kRows{
      Row{kNvmlHeat | kNvmlHardwareHeat, Level::warn, "too hot", "the GPU lowers its clocks",
          "nvidia-smi -q -d TEMPERATURE"},
      Row{kNvmlSlowdown | kNvmlPowerBrake, Level::warn, "slowed by the hardware",
          "clocks are halved or worse: power or heat", "nvidia-smi -q -d PERFORMANCE"},
      Row{kNvmlPowerCap, Level::note, "at its power limit", "clocks depend on the power that kernels draw",
          "nvidia-smi -q -d POWER"},
      Row{kNvmlSyncBoost, Level::note, "in a sync boost group", "the slowest GPU of the group sets the clock", ""},
      Row{kNvmlSetClocks, Level::note, "clocks are set", "steady, but results differ from GPUs with default clocks",
          "sudo nvidia-smi -rgc"}};
  Findings all;
  for (const auto& [bits, level, why, meaning, command] : kRows)
    if ((reasons & bits) != 0) all.push_back(kGpu(level, fmt::format("{}: {}", at, why), meaning, command));
  if (all.empty())
    all.push_back(kGpu(Level::ok, at + ((reasons & kNvmlIdle) != 0 ? ": idle" : ""), "nothing holds clocks down"));
  return all;
}

Findings modes(const Nvml& nvml, NvmlDevice gpu) {
  Findings all;
  if (const auto on = query_nvml(nvml.persistence, gpu))
    all.push_back(*on != 0
                      ? kGpu(Level::ok, "persistence mode on", "the driver stays loaded")
                      : kGpu(Level::warn, "persistence mode off",
                             "each program loads the driver again, and clocks start low", "sudo nvidia-smi -pm 1"));
  unsigned mig = 0, mig_after = 0;
  if (nvml.mig != nullptr && nvml.mig(gpu, &mig, &mig_after) == kNvmlOk)
    all.push_back(mig != 0
                      ? kGpu(Level::warn, "MIG on", "measurements are of a part of the GPU", "sudo nvidia-smi -mig 0")
                      : kGpu(Level::ok, "MIG off", "the whole GPU"));
  int ecc = 0, ecc_after = 0;
  if (nvml.ecc != nullptr && nvml.ecc(gpu, &ecc, &ecc_after) == kNvmlOk)
    all.push_back(ecc != 0
                      ? kGpu(Level::ok, "ECC on", "the usual setting of data-centre GPUs")
                      : kGpu(Level::note, "ECC off", "memory errors go unnoticed; some GPUs are faster without ECC",
                             "sudo nvidia-smi -e 1"));
  return all;
}

Findings power_and_heat(const Nvml& nvml, NvmlDevice gpu) {
  Findings all;
  const auto limit = query_nvml(nvml.power_limit, gpu), usual = query_nvml(nvml.default_power_limit, gpu);
  if (limit && usual) {
    const unsigned watt = *limit / 1000, usual_watt = *usual / 1000;
    all.push_back(watt < usual_watt ? kGpu(Level::warn, fmt::format("power limit {} of {} W", watt, usual_watt),
                                           "clocks fall under load earlier than on other GPUs",
                                           fmt::format("sudo nvidia-smi -pl {}", usual_watt))
                                    : kGpu(Level::ok, fmt::format("power limit {} W", watt), "the usual one"));
  }
  if (const auto celsius = query_nvml(nvml.temperature, gpu, kNvmlGpuTemperature))
    all.push_back(*celsius >= kHotCelsius ? kGpu(Level::warn, fmt::format("{} C", *celsius), "clocks are about to fall",
                                                 "nvidia-smi -q -d TEMPERATURE")
                                          : kGpu(Level::ok, fmt::format("below {} C", kHotCelsius), "cool enough"));
  return all;
}

Findings other_processes(const Nvml& nvml, NvmlDevice gpu) {
  unsigned count = 0;
  if (nvml.processes == nullptr) return {};
  const int error = nvml.processes(gpu, &count, nullptr);
  if (error != kNvmlOk && error != kNvmlInsufficientSize) return {};
  if (count == 0) return {kGpu(Level::ok, "no other process", "nothing competes for SMs and memory")};
  return {
      kGpu(Level::warn, counted(count, "other process"), "they take SMs, memory and memory bandwidth", "nvidia-smi")};
}

Findings pcie(const Nvml& nvml, NvmlDevice gpu) {
  const auto generation = query_nvml(nvml.pcie_generation, gpu), width = query_nvml(nvml.pcie_width, gpu);
  const auto max_generation = query_nvml(nvml.max_pcie_generation, gpu),
             max_width = query_nvml(nvml.max_pcie_width, gpu);
  if (!generation || !width || !max_generation || !max_width) return {};
  const std::string found =
      fmt::format("PCIe {} x{}, at most {} x{}", *generation, *width, *max_generation, *max_width);
  if (*width < *max_width)
    return {kGpu(Level::warn, found, "fewer lanes: copies and the network are slower", "sudo lspci -vv | grep LnkSta")};
  if (*generation < *max_generation)
    return {kGpu(Level::note, found, "an idle link is slow to save power; look under load",
                 "nvidia-smi --query-gpu=pcie.link.gen.current --format=csv")};
  return {kGpu(Level::ok, found, "as fast as it can be")};
}

Findings links(const Nvml& nvml, NvmlDevice gpu) {
  unsigned up = 0, all = 0;
  for (unsigned link = 0; link < kNvmlMostLinks; ++link)
    if (const auto state = query_nvml(nvml.link, gpu, link)) ++all, up += *state != 0 ? 1 : 0;
  if (all == 0) return {};
  const std::string found = fmt::format("{} of {} NVLinks up", up, all);
  if (up == all) return {kGpu(Level::ok, found, "all of them")};
  return {kGpu(Level::warn, found, "GPUs exchange over fewer links, or over PCIe", "nvidia-smi nvlink -s")};
}

std::string name(const Nvml& nvml, NvmlDevice gpu) {
  std::array<char, kNvmlNameBytes> text{};
  if (nvml.name == nullptr || nvml.name(gpu, text.data(), kNvmlNameBytes - 1) != kNvmlOk) return "GPU";
  return text.data();
}

/// Combines equal findings of several GPUs into one: "GPUs 0-2, 5: ...".
Findings merge_findings(const std::vector<Findings>& of_each) {
  struct FindingGroup {
    Finding finding;
    std::vector<size_t> gpus;
  };
  std::vector<FindingGroup> rows;
  for (size_t gpu = 0; gpu < of_each.size(); ++gpu)
    for (const Finding& one : of_each[gpu]) {
      const auto known = std::ranges::find(rows, one.found, [](const FindingGroup& row) { return row.finding.found; });
      if (known == rows.end())
        rows.push_back({one, {gpu}});
      else
        known->gpus.push_back(gpu);
    }
  Findings all;
  for (auto& [finding, gpus] : rows) {
    const bool every = gpus.size() == of_each.size() && gpus.size() > 1;
    finding.found = every ? fmt::format("all {} GPUs: {}", gpus.size(), finding.found)
                          : fmt::format("GPU {}: {}", fmt::join(gpus, ", "), finding.found);
    all.push_back(std::move(finding));
  }
  return all;
}

Findings all_gpu_findings(const Nvml& nvml) {
  unsigned count = 0;
  if (nvml.count(&count) != kNvmlOk)
    return {kGpu(Level::note, "NVML does not count its GPUs", "the GPUs are not examined")};
  std::vector<Findings> of_each;
  std::vector<std::string> names;
  for (unsigned i = 0; i < count; ++i) {
    Findings& own = of_each.emplace_back();
    NvmlDevice gpu = nullptr;
    if (nvml.handle(i, &gpu) != kNvmlOk) {
      own.push_back(
          kGpu(Level::warn, "does not answer", "the GPU may be lost, or this user has no access", "nvidia-smi"));
      continue;
    }
    names.push_back(name(nvml, gpu));
    own.push_back(kGpu(Level::ok, names.back(), "name of the GPU"));
    for (const auto probe : {clocks, modes, power_and_heat, other_processes, pcie, links})
      for (Finding& one : probe(nvml, gpu)) own.push_back(std::move(one));
  }
  Findings all = merge_findings(of_each);
  if (std::ranges::adjacent_find(names, std::not_equal_to{}) != names.end())
    all.push_back(kGpu(Level::warn, "GPUs of different kinds", "collectives wait for the slowest GPU",
                       fmt::format("CUDA_VISIBLE_DEVICES=... {} VERB", program_command())));
  return all;
}

}  // namespace

Findings gpu_findings(const Nvml* nvml) {
  if (nvml == nullptr) return {};
  const bool usable = nvml->init != nullptr && nvml->count != nullptr && nvml->handle != nullptr;
  if (const int error = usable ? nvml->init() : -1; error != kNvmlOk)
    return {
        kGpu(Level::note, fmt::format("NVML can't be used (error {})", error), "GPUs are not examined", "nvidia-smi")};
  Findings all = all_gpu_findings(*nvml);
  if (nvml->shutdown != nullptr) nvml->shutdown();
  return all;
}

}  // namespace moe::doctor
