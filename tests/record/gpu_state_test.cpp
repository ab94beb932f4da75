// GPUs' clocks and what holds them down, of a management library that is made up.
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>

#include "moe/record/gpu_watch.h"

namespace moe {
namespace {

struct MadeUpGpu {
  unsigned sm_mhz = 1980, memory_mhz = 3201, celsius = 40;
  unsigned long long reasons = 0;
};
std::vector<MadeUpGpu> made_up_gpus;
int begins = 0, ends = 0;

const MadeUpGpu& gpu_of(NvmlDevice device) { return *static_cast<const MadeUpGpu*>(device); }

Nvml made_up_nvml() {
  Nvml t;
  t.init = [] { return ++begins, kNvmlOk; };
  t.shutdown = [] { return ++ends, kNvmlOk; };
  t.count = [](unsigned* out) { return *out = static_cast<unsigned>(made_up_gpus.size()), kNvmlOk; };
  t.handle = [](unsigned i, NvmlDevice* out) { return *out = &made_up_gpus[i], kNvmlOk; };
  t.driver = [](char* out, unsigned size) { return std::strncpy(out, "580.65.06", size), kNvmlOk; };
  t.clock = [](NvmlDevice g, int kind, unsigned* out) {
    return *out = kind == kNvmlSmClock ? gpu_of(g).sm_mhz : gpu_of(g).memory_mhz, kNvmlOk;
  };
  t.temperature = [](NvmlDevice g, int, unsigned* out) { return *out = gpu_of(g).celsius, kNvmlOk; };
  t.reasons = [](NvmlDevice g, unsigned long long* out) { return *out = gpu_of(g).reasons, kNvmlOk; };
  return t;
}

TEST(GpuState, HasClocksAndWhatHoldsThem) {
  made_up_gpus = {{}};
  begins = ends = 0;
  const Nvml nvml = made_up_nvml();
  EXPECT_EQ(gpu_state(&nvml), (Fields{{"gpu_driver", std::string("580.65.06")},
                                      {"gpu_sm_mhz", std::string("1980")},
                                      {"gpu_memory_mhz", std::string("3201")},
                                      {"gpu_celsius", std::string("40")},
                                      {"gpu_held", std::string("none")}}));
  EXPECT_EQ(begins, 1);
  EXPECT_EQ(ends, 1);
}

TEST(GpuState, OfSeveralGpusSaysWhatDiffersOfEach) {
  made_up_gpus = {{}, {.sm_mhz = 345, .reasons = kNvmlIdle}, {.reasons = kNvmlPowerCap | kNvmlHeat}};
  const Nvml nvml = made_up_nvml();
  const Fields state = gpu_state(&nvml);
  EXPECT_EQ(state.text("gpu_sm_mhz", ""), "1980, 345, 1980");
  EXPECT_EQ(state.text("gpu_memory_mhz", ""), "3201");
  EXPECT_EQ(state.text("gpu_held", ""), "none, idle, power + heat");
}

TEST(GpuState, LeavesOutWhatIsNotTold) {
  made_up_gpus = {{}};
  Nvml nvml = made_up_nvml();
  nvml.temperature = nullptr;
  nvml.reasons = [](NvmlDevice, unsigned long long*) { return 3; };
  const Fields state = gpu_state(&nvml);
  EXPECT_FALSE(state.has("gpu_celsius"));
  EXPECT_FALSE(state.has("gpu_held"));
  EXPECT_TRUE(state.has("gpu_sm_mhz"));
  nvml.init = [] { return 9; };
  EXPECT_TRUE(gpu_state(&nvml).empty());
  EXPECT_TRUE(gpu_state(nullptr).empty());
}

TEST(GpuWatch, ReadsWhatIsNotIdleUntilItEnds) {
  static std::atomic<int> readings;
  readings = 0;
  made_up_gpus = {{}, {.sm_mhz = 345, .reasons = kNvmlIdle}};
  begins = ends = 0;
  auto nvml = std::make_shared<Nvml>(made_up_nvml());
  nvml->clock = [](NvmlDevice g, int, unsigned* out) {
    if (gpu_of(g).reasons == kNvmlIdle) return *out = 345, kNvmlOk;
    return *out = readings++ == 1 ? 1200U : 1980U, kNvmlOk;  // the second reading
  };
  nvml->reasons = [](NvmlDevice g, unsigned long long* out) {
    *out = gpu_of(g).reasons != 0 ? gpu_of(g).reasons : readings == 2 ? kNvmlPowerCap : 0;
    return kNvmlOk;
  };
  {
    const GpuWatch watch(nvml, GpuWatch::Interval(1));
    while (readings < 6) std::this_thread::sleep_for(GpuWatch::Interval(1));
    const Fields seen = watch.readings_summary();
    const int64_t count = seen.whole("gpu_readings", "");
    EXPECT_GE(count, 5);
    EXPECT_EQ(seen.whole("gpu_sm_mhz_least", ""), 1200);
    EXPECT_EQ(seen.whole("gpu_sm_mhz_median", ""), 1980);
    EXPECT_DOUBLE_EQ(seen.number("gpu_held_share", ""), 1.0 / static_cast<double>(count));
  }
  EXPECT_EQ(begins, 1);
  EXPECT_EQ(ends, 1);
}

TEST(GpuWatch, OfIdleOrUnknownGpusSaysNothing) {
  EXPECT_TRUE(GpuWatch(nullptr).readings_summary().empty());
  made_up_gpus = {{.reasons = kNvmlIdle}};
  const GpuWatch watch(std::make_shared<Nvml>(made_up_nvml()), GpuWatch::Interval(1));
  std::this_thread::sleep_for(GpuWatch::Interval(20));
  EXPECT_TRUE(watch.readings_summary().empty());
}

}  // namespace
}  // namespace moe
