// GPUs of a management library that is made up: a table of functions that answer from here.
#include "commands/doctor/gpus.h"

#include <cstring>

#include "tests/commands/doctor/found.h"

namespace moe::doctor {
namespace {

struct Gpu {
  const char* name = "NVIDIA H200";
  unsigned mhz = 1980, celsius = 40, limit_w = 700, processes = 0, width = 16, generation = 5, links_up = 18;
  unsigned long long reasons = 0;
  int persistence = 1, ecc = 1;
  unsigned mig = 0;
  bool lost = false;
};
std::vector<Gpu> gpus;  // of the library
int begun = 0, ended = 0, init_error = 0;

Gpu& of(NvmlDevice device) { return *static_cast<Gpu*>(device); }
template <class Value>
int give(Value* out, Value value) {
  *out = value;
  return kNvmlOk;
}

Nvml library() {
  Nvml t;
  t.init = [] { return ++begun, init_error; };
  t.shutdown = [] { return ++ended, kNvmlOk; };
  t.count = [](unsigned* out) { return give(out, static_cast<unsigned>(gpus.size())); };
  t.handle = [](unsigned i, NvmlDevice* out) { return gpus[i].lost ? 15 : give<NvmlDevice>(out, &gpus[i]); };
  t.name = [](NvmlDevice g, char* out, unsigned size) { return std::strncpy(out, of(g).name, size), kNvmlOk; };
  t.clock = [](NvmlDevice g, int kind, unsigned* out) { return kind == kNvmlSmClock ? give(out, of(g).mhz) : 2; };
  t.max_clock = [](NvmlDevice, int kind, unsigned* out) { return kind == kNvmlSmClock ? give(out, 1980u) : 2; };
  t.reasons = [](NvmlDevice g, unsigned long long* out) { return give(out, of(g).reasons); };
  t.persistence = [](NvmlDevice g, int* out) { return give(out, of(g).persistence); };
  t.mig = [](NvmlDevice g, unsigned* now, unsigned* then) { return give(now, of(g).mig), give(then, 0u); };
  t.ecc = [](NvmlDevice g, int* now, int* then) { return give(now, of(g).ecc), give(then, 1); };
  t.power_limit = [](NvmlDevice g, unsigned* out) { return give(out, of(g).limit_w * 1000); };
  t.default_power_limit = [](NvmlDevice, unsigned* out) { return give(out, 700000u); };
  t.processes = [](NvmlDevice g, unsigned* count, void*) {
    return give(count, of(g).processes), of(g).processes > 0 ? kNvmlInsufficientSize : kNvmlOk;
  };
  t.pcie_generation = [](NvmlDevice g, unsigned* out) { return give(out, of(g).generation); };
  t.max_pcie_generation = [](NvmlDevice, unsigned* out) { return give(out, 5u); };
  t.pcie_width = [](NvmlDevice g, unsigned* out) { return give(out, of(g).width); };
  t.max_pcie_width = [](NvmlDevice, unsigned* out) { return give(out, 16u); };
  t.link = [](NvmlDevice g, unsigned link, int* out) { return give(out, link < of(g).links_up ? 1 : 0); };
  t.temperature = [](NvmlDevice g, int sensor, unsigned* out) {
    return sensor == kNvmlGpuTemperature ? give(out, of(g).celsius) : 2;
  };
  return t;
}

Findings look(const std::vector<Gpu>& all, const Nvml& table = library()) {
  gpus = all;
  begun = ended = init_error = 0;
  return gpu_findings(&table);
}

Findings judge_case(void (*change)(Gpu&)) {
  Gpu gpu;
  change(gpu);
  return look({gpu});
}

TEST(Gpus, WithoutTheLibraryNothingIsSaid) { EXPECT_TRUE(gpu_findings(nullptr).empty()); }

TEST(Gpus, TheLibraryOfThisMachineIsThereOrNot) {
  const auto nvml = open_nvml();
  EXPECT_NO_THROW(gpu_findings(nvml.get()));
  if (nvml) {
    EXPECT_NE(nvml->init, nullptr);
  }
}

TEST(Gpus, OfAQuietMachineAreFine) {
  const Findings all = look({Gpu{}, Gpu{}});
  EXPECT_GE(all.size(), 9u);
  for (const Finding& one : all) {
    EXPECT_EQ(one.level, Level::ok) << one.found;
    EXPECT_TRUE(one.found.starts_with("all 2 GPUs: ")) << one.found;
    EXPECT_EQ(one.area, "gpu");
  }
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(ended, 1);
}

TEST(Gpus, WhatHoldsClocksDownIsNamed) {
  const auto of_reason = [](unsigned long long bits) {
    Gpu gpu;
    gpu.mhz = 1200;
    gpu.reasons = bits;
    return look({gpu});
  };
  EXPECT_EQ(found(of_reason(kNvmlHeat), "GPU 0: 1200 of 1980 MHz: too hot").level, Level::warn);
  EXPECT_EQ(found(of_reason(kNvmlHardwareHeat), "GPU 0: 1200 of 1980 MHz: too hot").level, Level::warn);
  EXPECT_EQ(found(of_reason(kNvmlSlowdown), "GPU 0: 1200 of 1980 MHz: slowed").level, Level::warn);
  EXPECT_EQ(found(of_reason(kNvmlPowerBrake), "GPU 0: 1200 of 1980 MHz: slowed").level, Level::warn);
  EXPECT_EQ(found(of_reason(kNvmlPowerCap), "GPU 0: 1200 of 1980 MHz: at its power limit").level, Level::note);
  EXPECT_EQ(found(of_reason(kNvmlSetClocks), "GPU 0: 1200 of 1980 MHz: clocks are set").level, Level::note);
  EXPECT_EQ(found(of_reason(kNvmlSyncBoost), "GPU 0: 1200 of 1980 MHz: in a sync boost").level, Level::note);
  EXPECT_EQ(found(of_reason(kNvmlIdle), "GPU 0: 1200 of 1980 MHz: idle").level, Level::ok);
  EXPECT_TRUE(has(of_reason(kNvmlIdle | kNvmlHeat), "GPU 0: 1200 of 1980 MHz: too hot"));
}

TEST(Gpus, ModesLimitsAndLinksHaveTheirLevels) {
  const auto level = [](void (*change)(Gpu&), const char* start) {
    return found(judge_case(change), std::string("GPU 0: ") + start).level;
  };
  EXPECT_EQ(level([](Gpu& g) { g.persistence = 0; }, "persistence mode off"), Level::warn);
  EXPECT_EQ(level([](Gpu& g) { g.mig = 1; }, "MIG on"), Level::warn);
  EXPECT_EQ(level([](Gpu& g) { g.ecc = 0; }, "ECC off"), Level::note);
  EXPECT_EQ(level([](Gpu& g) { g.limit_w = 500; }, "power limit 500 of 700 W"), Level::warn);
  EXPECT_EQ(level([](Gpu& g) { g.celsius = 84; }, "84 C"), Level::warn);
  EXPECT_EQ(level([](Gpu& g) { g.processes = 1; }, "1 other process"), Level::warn);
  EXPECT_EQ(level([](Gpu& g) { g.width = 8; }, "PCIe 5 x8, at most 5 x16"), Level::warn);
  EXPECT_EQ(level([](Gpu& g) { g.generation = 1; }, "PCIe 1 x16, at most 5 x16"), Level::note);
  EXPECT_EQ(level([](Gpu& g) { g.links_up = 12; }, "12 of 18 NVLinks up"), Level::warn);
}

TEST(Gpus, ThatAreAlikeStandTogether) {
  Gpu hot;
  hot.celsius = 90;
  const Findings all = look({Gpu{}, hot, Gpu{}, hot});
  EXPECT_EQ(found(all, "GPU 1, 3: 90 C").level, Level::warn);
  EXPECT_EQ(found(all, "GPU 0, 2: below").level, Level::ok);
  EXPECT_TRUE(has(all, "all 4 GPUs: persistence mode on"));
}

TEST(Gpus, OfDifferentKindsAreWarnedOf) {
  Gpu other;
  other.name = "NVIDIA A100";
  EXPECT_EQ(found(look({Gpu{}, other}), "GPUs of different kinds").level, Level::warn);
}

TEST(Gpus, ThatDoNotAnswerAreWarnedOf) {
  Gpu lost;
  lost.lost = true;
  EXPECT_EQ(found(look({Gpu{}, lost}), "GPU 1: does not answer").level, Level::warn);
}

TEST(Gpus, WhatTheLibraryLacksOrRefusesIsLeftOut) {
  Nvml least;
  EXPECT_EQ(found(look({Gpu{}}, least), "NVML can't be used").level, Level::note);
  const Nvml whole = library();
  least.init = whole.init;
  least.count = whole.count;
  least.handle = whole.handle;
  const Findings all = look({Gpu{}}, least);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].found, "GPU 0: GPU");
  Nvml refusing = library();
  refusing.link = [](NvmlDevice, unsigned, int*) { return 3; };
  refusing.processes = [](NvmlDevice, unsigned*, void*) { return 3; };
  refusing.mig = [](NvmlDevice, unsigned*, unsigned*) { return 3; };
  refusing.temperature = nullptr;
  const Findings rest = look({Gpu{}}, refusing);
  EXPECT_TRUE(has(rest, "GPU 0: PCIe"));
  for (const char* absent : {"GPU 0: 0 of", "GPU 0: 18 of", "GPU 0: no other", "GPU 0: MIG", "GPU 0: below"})
    EXPECT_FALSE(has(rest, absent)) << absent;
}

TEST(Gpus, ALibraryThatDoesNotStartIsANote) {
  gpus = {Gpu{}};
  ended = 0;
  init_error = 9;
  const Nvml table = library();
  const Findings all = gpu_findings(&table);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].found, "NVML can't be used (error 9)");
  EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace moe::doctor
