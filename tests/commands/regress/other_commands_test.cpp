// `ab` of commands that are not moetune's, by what they print.
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/commands/cli/program_test.h"

namespace moe::regress {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class OtherCommands : public ProgramTest {
 protected:
  // A command `step` in a folder, which prints this text.
  void step(const std::string& folder, const std::string& text, int code = 0) {
    fs::create_directories(fs::path(folder_) / folder);
    const std::string path = fmt::format("{}/{}/step", folder_, folder);
    std::ofstream(path) << fmt::format("#!/bin/sh\necho \"$PWD $*\" >> {}/launches\ncat <<'END'\n{}\nEND\nexit {}\n",
                                       folder_, text, code);
    fs::permissions(path, fs::perms::owner_all);
  }
  Printed ab(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"ab", "--base", "one", "--head", "two"});
    flags.insert(flags.end(), {"--", "./step", "--size", "1"});
    return run(flags);
  }
  Json judged(const std::vector<std::string>& flags, int code) {
    std::vector<std::string> all{"--json", "--quiet"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Printed printed = ab(all);
    EXPECT_EQ(printed.exit_code, code) << printed.err;
    return Json::parse(printed.out, nullptr, false);
  }
  std::string log_of_launches() const {
    std::ifstream in(folder_ + "/launches");
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

std::string megatron_log(double first_ms, double ms) {
  std::string text;
  for (const double time : {first_ms, ms, 1.01 * ms, 0.99 * ms})
    text += fmt::format(
        " [2026-01-01 00:00:00] iteration        5/     50 | consumed samples: 640 | elapsed time per iteration (ms): "
        "{:.1f} | throughput per GPU (TFLOP/s/GPU): 200.0 | lm loss: 1.0E+01 |\n",
        time);
  return text;
}

TEST_F(OtherCommands, MegatronsLogIsReadWithoutItsFirstIteration) {
  step("one", megatron_log(90000, 9370)), step("two", megatron_log(20000, 15870));
  const Json json = judged({"--metric", "megatron"}, 1);
  ASSERT_EQ(json["cases"].size(), 1U);
  EXPECT_EQ(json["cases"][0]["case"], "command");
  EXPECT_EQ(json["cases"][0]["verdict"], "SLOW");
  EXPECT_NEAR(json["cases"][0]["base_s"], 9.37, 1e-9);
  EXPECT_NEAR(json["cases"][0]["head_s"], 15.87, 1e-9);
  EXPECT_NEAR(json["cases"][0]["ratio"], 15.87 / 9.37, 1e-9);
}

TEST_F(OtherCommands, RunInTheirFoldersWithTheirFlags) {
  step("one", "0.5"), step("two", "0.5");
  judged({"--metric", "number", "--head-flags", "--fast"}, 0);
  const std::string launches = log_of_launches();
  EXPECT_NE(launches.find("/one --size 1\n"), std::string::npos) << launches;
  EXPECT_NE(launches.find("/two --size 1 --fast\n"), std::string::npos) << launches;
}

TEST_F(OtherCommands, BenchmarksAreCasesByTheirMedians) {
  const auto document = [](double sort_us, double merge_ms) {
    return fmt::format(R"(Running ./bench
{{"context": {{"num_cpus": 2}}, "benchmarks": [
 {{"name": "sort/8", "run_name": "sort/8", "run_type": "iteration", "real_time": {0}, "time_unit": "us"}},
 {{"name": "sort/8", "run_name": "sort/8", "run_type": "iteration", "real_time": {1}, "time_unit": "us"}},
 {{"name": "sort/8", "run_name": "sort/8", "run_type": "iteration", "real_time": {0}, "time_unit": "us"}},
 {{"name": "sort/8_mean", "run_name": "sort/8", "run_type": "aggregate", "aggregate_name": "mean", "real_time": 1e9,
   "time_unit": "us"}},
 {{"name": "sort/8_median", "run_name": "sort/8", "run_type": "aggregate", "aggregate_name": "median",
   "real_time": 1e9, "time_unit": "us"}},
 {{"name": "merge_median", "run_name": "merge", "run_type": "aggregate", "aggregate_name": "median", "real_time": {2},
   "time_unit": "ms"}},
 {{"name": "broken", "run_name": "broken", "run_type": "iteration", "error_occurred": true, "error_message": "no GPU",
   "real_time": 0.0, "time_unit": "ns"}}]}})",
                       sort_us, 7 * sort_us, merge_ms);
  };
  step("one", document(20, 3)), step("two", document(20, 3.6));
  const Json json = judged({"--metric", "gbench"}, 1);
  ASSERT_EQ(json["cases"].size(), 2U) << json;
  EXPECT_EQ(json["cases"][0]["case"], "merge");
  EXPECT_NEAR(json["cases"][0]["ratio"], 1.2, 1e-9);
  EXPECT_EQ(json["cases"][1]["case"], "sort/8");
  EXPECT_EQ(json["cases"][1]["verdict"], "SAME");
  EXPECT_NEAR(json["cases"][1]["base_s"], 20e-6, 1e-12);
}

TEST_F(OtherCommands, OfARateMoreIsFaster) {
  step("one", "step 1: 800 tokens/s\nstep 2: 800 tokens/s"), step("two", "step 1: 1000 tokens/s");
  const Json json = judged({"--metric", "([0-9.]+) tokens/s", "--unit", "1/s"}, 0);
  EXPECT_EQ(json["cases"][0]["verdict"], "FAST");
  EXPECT_NEAR(json["cases"][0]["ratio"], 0.8, 1e-9);
}

TEST_F(OtherCommands, UnitsAreOfTime) {
  step("one", "took 250"), step("two", "took 250");
  for (const auto& [unit, seconds] : {std::pair{"s", 250.0}, {"ms", 0.25}, {"us", 250e-6}, {"ns", 250e-9}})
    EXPECT_NEAR(judged({"--metric", "took (.*)", "--unit", unit, "--overwrite"}, 0)["cases"][0]["base_s"], seconds,
                1e-9 * seconds);
}

TEST_F(OtherCommands, GatesOfThemBeginAgain) {
  step("one", "1"), step("two", "1");
  judged({"--metric", "number"}, 0);
  judged({"--metric", "number"}, 0);
  const std::string launches = log_of_launches();
  EXPECT_EQ(std::ranges::count(launches, '\n'), 28);  // twice one of each to find the cases, six pairs
}

TEST_F(OtherCommands, AreLinesOfACaseList) {
  step("one", "nothing\n0.5"), step("two", "0.5");
  file("list.toml",
       "schema = 1\n[[launch]]\nname = \"training\"\ncommand = \"./step\"\nmetric = \"number\"\n"
       "unit = \"ms\"\n");
  const Printed printed = run({"ab", "--base", "one", "--head", "two", "--cases", "list.toml", "--json", "--quiet"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const Json json = Json::parse(printed.out);
  EXPECT_EQ(json["cases"][0]["case"], "training");
  EXPECT_NEAR(json["cases"][0]["base_s"], 0.5e-3, 1e-12);
}

TEST_F(OtherCommands, AHeadWithoutItsNumberIsFour) {
  step("one", "1"), step("two", "out of memory");
  const Json json = judged({"--metric", "number"}, 4);
  EXPECT_EQ(json["broken"]["command"], "found no time for metric 'number' in the output");
  step("two", "1", 3);
  EXPECT_EQ(ab({"--metric", "number"}).exit_code, 4);
}

TEST_F(OtherCommands, WhatCannotBeReadIsOneLine) {
  step("one", "loss nan"), step("two", "1");
  const auto refused = [&](const std::vector<std::string>& flags, const std::string& said) {
    const Printed printed = ab(flags);
    EXPECT_EQ(printed.exit_code, 2) << printed.err;
    EXPECT_EQ(printed.err, "moetune: " + said + "\n");
  };
  const std::string expected =
      ", expected gbench, megatron, nemo, megatron-bridge, deepspeed, nsys:RANGE, number, or a "
      "regular expression with one group";
  refused({"--metric", "([0-9]+"}, "--metric: found '([0-9]+'" + expected);
  refused({"--metric", "loss"}, "--metric: found 'loss'" + expected);
  refused({"--metric", "(a)(b)"}, "--metric: found '(a)(b)'" + expected);
  refused({"--metric", "number", "--unit", "hours"}, "--metric: found unit 'hours', expected s, ms, us, ns or 1/s");
  refused({"--metric", "gbench", "--unit", "ms"},
          "--metric: found unit 'ms', expected none: metric gbench has a fixed unit");
  refused({"--unit", "ms"}, "--unit: found 'ms' without --metric, expected both");
  refused({"--metric", "number"}, "--metric number: found no time for metric 'number' in the output: ./step --size 1");
  refused({"--metric", "loss (.*)"}, "--metric loss (.*): found 'nan', expected a number above 0: ./step --size 1");
  refused({"--metric", "gbench"},
          "--metric gbench: found no JSON of google/benchmark on stdout (--benchmark_format=json): ./step --size 1");
  const Printed printed = run({"ab", "--base", "three", "--metric", "number", "--", "./step"});
  EXPECT_EQ(printed.exit_code, 2);
  EXPECT_EQ(printed.err, "moetune: --base: found 'three', expected a folder in which commands can run\n");
}

}  // namespace
}  // namespace moe::regress
