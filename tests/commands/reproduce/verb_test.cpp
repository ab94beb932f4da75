// `moetune reproduce` as a user meets it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/base/scratch.h"
#include "tests/commands/cli/program.h"

namespace moe::reproduce {
namespace {

using Json = nlohmann::json;

Printed run(const Scratch& scratch, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "reproduce");
  return run_program(MOETUNE_PROGRAM, arguments, scratch.path(""));
}

TEST(Reproduce, PrintsThePaperBesideOurs) {
  const Scratch scratch;
  const Printed printed = run(scratch, {"monta-table8"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  for (const char* part : {"monta-table8", "paper, share", "difference", "conventions", "not computable from print"})
    EXPECT_NE(printed.out.find(part), std::string::npos) << part;
  EXPECT_TRUE(std::filesystem::exists(scratch.path("results/reproduce-monta-table8.jsonl")));
}

TEST(Reproduce, JsonIsOneDocumentAndRecordsHoldItsFigures) {
  const Scratch scratch;
  const Printed printed = run(scratch, {"fsmoe-table2", "--json", "--out", "mine.jsonl"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const Json json = Json::parse(printed.out);
  EXPECT_EQ(json["table"], "fsmoe-table2");
  EXPECT_EQ(json["records"], "mine.jsonl");
  const std::string records = Scratch::read(scratch.path("mine.jsonl"));
  EXPECT_EQ(static_cast<size_t>(std::count(records.begin(), records.end(), '\n')), json["figures"].size() + 2);
}

TEST(Reproduce, AssumptionsAreListed) {
  const Scratch scratch;
  const Printed printed = run(scratch, {"fsmoe-fig6", "--assume", "fsmoe-models"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_NE(printed.out.find("\nassumed\n"), std::string::npos);
  EXPECT_NE(printed.out.find("alltoall inter 2"), std::string::npos);
}

constexpr const char* kColumns =
    "source,model,gpu,gpus,precision,dispatcher,seq,global_batch,micro_batch,tp,pp,vp,cp,ep,etp,fsdp,recompute,overlap,"
    "step_s,tokens_s_gpu,tflops_gpu\n";

TEST(Reproduce, TrainingOfOtherRunsPredictsThemOrSaysWhyNot) {
  const Scratch scratch;
  scratch.write("runs.csv", std::string("# mine\n") + kColumns +
                                "M,olmoe-1b-7b,H100,8,bf16,alltoall,4096,16,1,1,1,0,1,8,1,0,none,none,2.5,,\n"
                                "M,olmoe-1b-7b,H100,8,fp8,alltoall,4096,16,1,1,1,0,1,8,1,0,none,none,2,,\n");
  const Printed printed = run(scratch, {"training", "--runs", "runs.csv", "--json"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const Json runs = Json::parse(printed.out)["runs"];
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0]["measured_s"], 2.5);
  EXPECT_EQ(runs[0]["measured_tokens_s_gpu"], 16 * 4096 / 8 / 2.5);
  EXPECT_GT(runs[0]["predicted_s"].get<double>(), 0);
  EXPECT_FALSE(runs[0].contains("reason"));
  EXPECT_FALSE(runs[1].contains("predicted_s"));
  EXPECT_EQ(runs[1]["reason"], "no prices of fp8, only of bf16");
  const Printed text = run(scratch, {"training", "--runs", "runs.csv"});
  EXPECT_NE(text.out.find("row 2: no prices of fp8"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("1 of 2 steps are predicted"), std::string::npos) << text.out;
}

TEST(Reproduce, AFaultOfTheRunsNamesFileAndLine) {
  const Scratch scratch;
  scratch.write("runs.csv", std::string(kColumns) + "M,olmoe-1b-7b,H100,eight\n");
  const Printed printed = run(scratch, {"training", "--runs", "runs.csv"});
  EXPECT_EQ(printed.exit_code, 2);
  EXPECT_NE(printed.err.find("runs.csv"), std::string::npos) << printed.err;
  EXPECT_EQ(std::count(printed.err.begin(), printed.err.end(), '\n'), 1) << printed.err;
}

TEST(Reproduce, WhatCannotBeUsedIsOneLineAndExitCode2) {
  const Scratch scratch;
  const std::vector<std::pair<std::vector<std::string>, std::string>> rows{
      {{}, "expected one of TABLE, --audit and --all"},
      {{"fsmoe-table5", "--audit"}, "found several"},
      {{"fsmoe-table9"}, "fsmoe-table2, fsmoe-table5"},
      {{"fsmoe-table5", "--write", "x.md"}, "--write"},
      {{"fsmoe-table5", "--runs", "x.csv"}, "--runs"},
      {{"training", "--runs", "none.csv"}, "none.csv"},
      {{"--audit", "--assume", "fsmoe-models"}, "--assume"},
      {{"fsmoe-fig6", "--assume", "none"}, "fsmoe-models"},
      {{"fsmoe-fig6", "--assume", "./none.toml"}, "none.toml"},
      {{"fsmoe-table5", "--assume", "fsmoe-models"}, "fsmoe-table5"}};
  for (const auto& [arguments, part] : rows) {
    const Printed printed = run(scratch, arguments);
    EXPECT_EQ(printed.exit_code, 2) << part << "\n" << printed.err;
    EXPECT_EQ(std::count(printed.err.begin(), printed.err.end(), '\n'), 1) << printed.err;
    EXPECT_TRUE(printed.out.empty()) << printed.out;
    EXPECT_NE(printed.err.find(part), std::string::npos) << "expected '" << part << "' in\n" << printed.err;
  }
}

}  // namespace
}  // namespace moe::reproduce
