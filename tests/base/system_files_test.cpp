// Files of /proc and /sys, there or not, and whatever they hold.
#include "moe/base/system_files.h"

#include <sys/stat.h>

#include "tests/base/made_up_machine.h"

namespace moe {
namespace {

TEST(SystemFiles, AreReadUnderARoot) {
  const MadeUpMachine machine;
  machine.write("/sys/a/number", "42 kHz\n");
  machine.write("/sys/b", "text \n\n");
  const SystemFiles files = machine.files();
  EXPECT_EQ(files.text("/sys/b"), "text");
  EXPECT_EQ(files.number("/sys/a/number"), 42);
  EXPECT_EQ(files.number("/sys/b"), std::nullopt);
  EXPECT_EQ(files.names("/sys"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(files.has("/sys/a"));
}

TEST(SystemFiles, MayBeMissing) {
  const MadeUpMachine machine;
  const SystemFiles files = machine.files();
  EXPECT_EQ(files.text("/proc/stat"), std::nullopt);
  EXPECT_EQ(files.number("/proc/stat"), std::nullopt);
  EXPECT_TRUE(files.names("/proc").empty());
  EXPECT_FALSE(files.has("/proc"));
  machine.write("/proc/a/b", "");
  EXPECT_EQ(files.text("/proc/a"), std::nullopt) << "a folder";
  EXPECT_EQ(cpu_times(files), std::nullopt);
  EXPECT_EQ(memory_bytes(files, "MemTotal"), std::nullopt);
  EXPECT_EQ(pressure_of(files, "cpu"), std::nullopt);
  EXPECT_EQ(online_cores(files), 1);
}

TEST(SystemFiles, AreReadAsFarAsAsked) {
  const MadeUpMachine machine;
  machine.write("/long", std::string(10000, 'x'));
  EXPECT_EQ(machine.files().text("/long")->size(), 10000u);
  EXPECT_EQ(machine.files().text("/long", 5000)->size(), 5000u);
}

TEST(SystemFiles, APipeIsNotWaitedFor) {
  const Scratch scratch;
  ASSERT_EQ(::mkfifo(scratch.path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(SystemFiles(scratch.path("")).text("pipe"), "");
}

TEST(SystemFiles, NumbersBeginATextAndAreFinite) {
  EXPECT_EQ(leading_number(" 1.5\n"), 1.5);
  EXPECT_EQ(leading_number("-1 x"), -1);
  EXPECT_EQ(leading_number("200 Gb/sec (4X HDR)"), 200);
  for (const char* none : {"", "x1", "inf", "nan", "1e999", "max"})
    EXPECT_EQ(leading_number(none), std::nullopt) << none;
}

TEST(SystemFiles, KeysHaveValues) {
  const std::string text = "model\t: 85\nmodel name\t: A CPU: fast\nempty:\nlast:x";
  EXPECT_EQ(value_of_key(text, "model name"), "A CPU: fast");
  EXPECT_EQ(value_of_key(text, "model"), "85");
  EXPECT_EQ(value_of_key(text, "empty"), "");
  EXPECT_EQ(value_of_key(text, "last"), "x");
  EXPECT_EQ(value_of_key(text, "name"), std::nullopt);
}

TEST(SystemFiles, ListsOfCoresAreCounted) {
  EXPECT_EQ(count_of_list("0"), 1);
  EXPECT_EQ(count_of_list("0-3,8\n"), 5);
  EXPECT_EQ(count_of_list("0-2147483647"), int64_t{1} << 31);
  for (const char* none : {"", "x", "3-1", "-1", "0-", "0,,1", "99999999999"})
    EXPECT_EQ(count_of_list(none), std::nullopt) << none;
}

TEST(SystemFiles, TellTimesPressureAndMemory) {
  const MadeUpMachine machine;
  machine.write("/proc/stat", "cpu  100 1 20 800 30 4 5 40 7 0\ncpu0 1 2 3 4\ncpu1 1 2 3 4\nintr 5\n");
  machine.write("/proc/pressure/cpu", "some avg10=12.50 avg60=1.00 avg300=0.00 total=9\n");
  machine.write("/proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n");
  const auto times = cpu_times(machine.files());
  ASSERT_TRUE(times);
  EXPECT_EQ(times->busy, 130);
  EXPECT_EQ(times->idle, 830);
  EXPECT_EQ(times->steal, 40);
  EXPECT_EQ(online_cores(machine.files()), 2);
  machine.write("/sys/devices/system/cpu/online", "0-6\n");
  EXPECT_EQ(online_cores(machine.files()), 7);
  EXPECT_EQ(pressure_of(machine.files(), "cpu"), 0.125);
  EXPECT_EQ(memory_bytes(machine.files(), "MemTotal"), 2 << 20);
  EXPECT_EQ(memory_bytes(machine.files(), "MemAvailable"), std::nullopt);
}

}  // namespace
}  // namespace moe
