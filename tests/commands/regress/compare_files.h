#pragma once
// Record files for tests of what reads them.
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "moe/record/record_json.h"

namespace moe::regress {

inline RunHeader made_header() {
  RunHeader run;
  run.started = "2025-01-01T00:00:00Z";
  run.git = {{"commit", "0123456789abcdef"}, {"dirty", false}};
  run.machine = {
      {"cpu", "made up"}, {"cores", 8}, {"memory_bytes", int64_t{1} << 34}, {"os", "any"}, {"architecture", "x86_64"}};
  run.ranks = {{"threads", 2}};
  return run;
}

/// Returns a layer of `total_s` seconds: two iterations on two ranks, the slower rank of which has it.
inline CaseRecord made_layer(const std::string& layer, const std::string& schedule, double total_s) {
  CaseRecord record;
  record.key = fmt::format("run/{}/{}", layer, schedule);
  record.parameters = {{"layer", layer}, {"batch", 4}, {"dtype", "float32"}};
  record.schedule = schedule;
  record.degree_forward = record.degree_backward = 2;
  record.backend = "local";
  record.samples = {{"forward_s", {{total_s / 3, total_s / 3}}}, {"total_s", {{total_s, total_s / 2}, {0.0, total_s}}}};
  record.samples[1].values[1][0] = total_s / 4;
  return record;
}

inline CaseRecord made_op(const std::string& op, double seconds) {
  CaseRecord record = made_layer("", "", seconds);
  record.key = fmt::format("op/{}/1024", op);
  record.schedule.clear();
  record.degree_forward = record.degree_backward = 0;
  record.parameters = {{"op", op}, {"bytes", 1024.0}};
  record.samples.erase(record.samples.begin());
  record.samples[0].name = "seconds";
  return record;
}

inline std::string lines_of(const RunHeader& run, const std::vector<CaseRecord>& cases, bool ended = true) {
  std::string text = to_json_line(run);
  for (const CaseRecord& record : cases) text += to_json_line(record);
  return text + (ended ? to_json_line(EndMark{"2025-01-01T01:00:00Z"}) : "");
}

/// Gives each test a folder of its own.
class RecordFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + fmt::format("moetune-regress-{}-{}", getpid(),
                                               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  /// Writes a file; returns its path.
  std::string file(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(folder_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  std::string file(const std::string& name, const std::vector<CaseRecord>& cases) const {
    return file(name, lines_of(made_header(), cases));
  }
  std::string folder_;
};

}  // namespace moe::regress
