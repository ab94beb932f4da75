// Models with many micro-batches, layers or pieces, and layers too wide to count, as a user meets them.
#include <algorithm>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/commands/cli/program.h"

namespace moe {
namespace {

using Json = nlohmann::json;

Printed moetune(const std::vector<std::string>& arguments) {
  return run_program(MOETUNE_PROGRAM, arguments, testing::TempDir());
}

Json json_of(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const Printed printed = moetune(arguments);
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  return Json::parse(printed.out);
}

TEST(Large, ManyMicroBatchesOfAModelArePlanned) {
  const Printed printed =
      moetune({"simulate", "--model", "gpt2-xl@fsmoe", "--schedule", "ds-moe,tutel,fsmoe", "--micro-batches", "256"});
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_NE(printed.out.find("48 layers"), std::string::npos) << printed.out;
}

TEST(Large, WhatIsTooLargeIsOneLineThatSaysWhatIsExpected) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> asked{
      {{"simulate", "--schedule", "tutel", "--layers", "100000"}, "tasks in a plan"},
      {{"simulate", "--schedule", "lina", "--micro-op-bytes", "1"}, "expected at least"},
      {{"simulate", "--schedule", "fsmoe", "--model-dim", "1000000000", "--hidden", "1000000000"},
       "expected a product of at most"},
      {{"memory", "--model-dim", "1000000000", "--hidden", "1000000000"}, "expected a product of at most"},
      {{"memory", "--model-dim", "4000000000"}, "expected a whole number from 1 to 1073741824"}};
  for (const auto& [arguments, expected] : asked) {
    const Printed printed = moetune(arguments);
    EXPECT_EQ(printed.exit_code, 2) << printed.err;
    EXPECT_NE(printed.err.find(expected), std::string::npos) << printed.err;
    EXPECT_EQ(std::ranges::count(printed.err, '\n'), 1) << printed.err;
  }
}

TEST(Large, DegreesAboveTheRowsAreTheRows) {
  const std::vector<std::string> layer{"simulate", "--schedule", "fsmoe", "--batch", "1", "--seq", "256"};
  const auto at = [&](const std::string& degree) {
    std::vector<std::string> arguments = layer;
    arguments.insert(arguments.end(), {"--degree-forward", degree, "--degree-backward", degree});
    return json_of(arguments);
  };
  const Json above = at("4096");
  const int rows = above["degree_forward"];
  EXPECT_LT(rows, 1000);
  const Json most = at(std::to_string(rows));
  EXPECT_EQ(above["forward_s"], most["forward_s"]);
  EXPECT_EQ(above["backward_s"], most["backward_s"]);
  EXPECT_NE(above["notes"].dump().find("degree above T_rank: found 4096, treated as " + std::to_string(rows)),
            std::string::npos)
      << above["notes"];
}

// 64 micro-batches under gpipe on one stage: all are kept, by both verbs.
TEST(Large, SimulateAndMemoryCountTheSameBytes) {
  for (const char* order : {"gpipe", "1f1b"}) {
    const std::vector<std::string> model{"--cluster", "testbed-b",       "--model", "gpt2-xl@fsmoe", "--layers",
                                         "2",         "--micro-batches", "64",      "--pipeline",    order};
    std::vector<std::string> memory{"memory"}, simulate{"simulate", "--schedule", "fsmoe"};
    memory.insert(memory.end(), model.begin(), model.end());
    simulate.insert(simulate.end(), model.begin(), model.end());
    const Json counted = json_of(memory), simulated = json_of(simulate);
    EXPECT_EQ(counted["micro_batches_in_flight"], std::string(order) == "gpipe" ? 64 : 1);
    EXPECT_DOUBLE_EQ(counted["estimates"][2]["total_bytes"], simulated["schedules"][0]["memory_bytes"]);
    EXPECT_EQ(counted["estimates"][2]["fits"], simulated["schedules"][0]["fits"]);
  }
}

}  // namespace
}  // namespace moe
