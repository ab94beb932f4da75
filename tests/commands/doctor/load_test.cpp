// What a made-up machine does while it is looked at: its times and processes change as the probe waits.
#include <unistd.h>

#include "tests/commands/doctor/found.h"

namespace moe::doctor {
namespace {

class Load : public testing::Test {
 protected:
  Load() {
    write("/sys/devices/system/cpu/online", "0-3\n");
    times(1000, 9000, 0);
  }
  void write(const std::string& path, const std::string& text) const { machine_.write(path, text); }
  void times(int busy, int idle, int stolen) const {
    write("/proc/stat", fmt::format("cpu  {} 0 0 {} 0 0 0 {} 0 0\n", busy, idle, stolen));
  }
  void process(int id, const std::string& name, int ticks) const {
    write(fmt::format("/proc/{}/stat", id),
          fmt::format("{} ({}) R 1 1 1 0 -1 4194560 9 0 0 0 {} {} 0 0 20 0 1 0 9 9 9\n", id, name, ticks / 2,
                      ticks - ticks / 2));
  }
  /// `meanwhile` is what the machine does as the probe waits.
  Findings look(const std::function<void()>& meanwhile) const { return load_findings(machine_.files(), meanwhile); }

  MadeUpMachine machine_;
};

TEST_F(Load, AQuietMachineIsFine) {
  write("/proc/loadavg", "0.05 0.10 0.20 1/100 99\n");
  for (const char* resource : {"cpu", "memory", "io"})
    write(std::string("/proc/pressure/") + resource, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
  const Findings all = look([&] { times(1002, 9398, 0); });
  EXPECT_EQ(all.size(), 7u);
  for (const Finding& one : all) EXPECT_EQ(one.level, Level::ok) << one.found;
}

TEST_F(Load, StolenTimeIsAWarning) {
  const Findings all = look([&] { times(1000, 9380, 20); });
  EXPECT_EQ(found(all, "5.0 % of the time stolen").level, Level::warn);
  EXPECT_EQ(found(all, "0.0 % of all cores busy").level, Level::ok);
  EXPECT_EQ(found(look([&] { times(1000, 9780, 20); }), "0.0 % of the time stolen").level, Level::ok)
      << "of this second alone";
}

TEST_F(Load, BusyCoresAreAWarning) {
  EXPECT_EQ(found(look([&] { times(1200, 9200, 0); }), "50 % of all cores busy").level, Level::warn);
}

TEST_F(Load, BusyProcessesAreNamedWithoutTheirPaths) {
  process(10, "/opt/secret/cc1plus", 500);
  process(11, "a (b)/c", 500);
  process(12, "idle", 500);
  process(13, "ended", 500);
  process(::getpid(), "moetune", 0);
  const Findings all = look([&] {
    times(1190, 9210, 0);  // 100 ticks a core
    process(10, "/opt/secret/cc1plus", 590);
    process(11, "a (b)/c", 530);
    process(12, "idle", 501);
    process(14, "new", 80);
    process(::getpid(), "moetune", 60);
    machine_.remove("/proc/13");
  });
  const Finding busy = found(all, "of a core: ");
  EXPECT_EQ(busy.found, "of a core: cc1plus 90 %, a (b)/c 30 %");
  EXPECT_EQ(busy.level, Level::warn);
}

TEST_F(Load, BusyProcessesOfOneNameAreOneProgram) {
  for (int i = 0; i < 4; ++i) process(20 + i, i < 3 ? "cc1plus" : "ld", 0);
  const Findings all = look([&] {
    times(1100, 9300, 0);
    for (int i = 0; i < 4; ++i) process(20 + i, i < 3 ? "cc1plus" : "ld", 20);
  });
  EXPECT_EQ(found(all, "of a core").found, "of a core: 3 x cc1plus 60 %, ld 20 %");
}

TEST_F(Load, OfManyBusyProcessesTheFirstAreNamed) {
  for (int i = 0; i < 6; ++i) process(20 + i, fmt::format("p{}", i), 0);
  const Findings all = look([&] {
    times(1100, 9300, 0);
    for (int i = 0; i < 6; ++i) process(20 + i, fmt::format("p{}", i), 6 + i);
  });
  EXPECT_EQ(found(all, "of a core").found, "of a core: p5 11 %, p4 10 %, p3 9 %, ...");
  EXPECT_EQ(found(all, "of a core").level, Level::note);
}

TEST_F(Load, PressureAndLoadAverageHaveTheirLevels) {
  write("/proc/pressure/cpu", "some avg10=7.50 avg60=1.00 avg300=0.00 total=9\nfull avg10=0.00\n");
  write("/proc/pressure/io", "some avg10=1.50 avg60=1.00 avg300=0.00 total=9\n");
  write("/proc/loadavg", "0.80 0.10 0.20 1/100 99\n");
  Findings all = look([&] { times(1000, 9400, 0); });
  EXPECT_EQ(found(all, "cpu pressure 7.5 %").level, Level::warn);
  EXPECT_EQ(found(all, "io pressure 1.5 %").level, Level::note);
  EXPECT_FALSE(has(all, "memory pressure"));
  EXPECT_EQ(found(all, "load average 0.80 on 4 cores").level, Level::note);
  write("/proc/loadavg", "2.00 0.10 0.20 1/100 99\n");
  EXPECT_EQ(found(look([] {}), "load average 2.00 on 4 cores").level, Level::warn);
}

TEST_F(Load, WithoutTimesThatIsSaid) {
  EXPECT_EQ(found(look([] {}), "busy times of cores are unknown").level, Level::note) << "no time has passed";
  EXPECT_EQ(found(look([&] { times(1, 1, 0); }), "busy times of cores are unknown").level, Level::note) << "backwards";
  machine_.remove("/proc");
  EXPECT_EQ(found(look([] {}), "busy times of cores are unknown").level, Level::note);
}

TEST_F(Load, GarbageIsNoError) {
  for (const std::string& text : garbage()) {
    for (const char* file : {"/proc/7/stat", "/proc/stat", "/proc/loadavg", "/proc/pressure/io"}) write(file, text);
    times(1000, 9000, 0);
    for (const Finding& one : look([&] { write("/proc/stat", text); })) EXPECT_FALSE(one.found.empty());
    for (const char* line : {"7 (name", "7 name) R", ") (", "7 (x) R 1"}) {
      write("/proc/7/stat", line);
      EXPECT_FALSE(has(look([&] { times(1100, 9300, 0); }), "of a core: "));
      times(1000, 9000, 0);
    }
  }
}

}  // namespace
}  // namespace moe::doctor
