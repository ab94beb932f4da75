// A records file answers one question: what resumes a run that was broken off, and what is refused.
#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "moe/record/reader.h"
#include "tests/base/scratch.h"
#include "tests/commands/cli/program.h"

namespace moe {
namespace {

using Words = std::vector<std::string>;

class Resumed : public testing::Test {
 protected:
  void SetUp() override {
    namespace fs = std::filesystem;
    const std::string configs = MOETUNE_SOURCE_DIR "/configs/";
    fs::copy_file(configs + "clusters/testbed-b.toml", scratch_.path("cluster.toml"));
    fs::copy_file(configs + "grids/fsmoe-30-b.toml", scratch_.path("grid.toml"));
    fs::copy_file(configs + "layers/example.toml", scratch_.path("layer.toml"));
  }

  Printed run(Words words, const Words& more = {}) {
    words.insert(words.end(), more.begin(), more.end());
    return run_program(MOETUNE_PROGRAM, words, scratch_.path(""));
  }

  // As a run leaves it that is killed before its last two lines are written.
  std::string broken_off(const Words& words, const std::string& file) {
    std::filesystem::remove(scratch_.path(file));
    const Printed printed = run(words);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    std::string text = Scratch::read(scratch_.path(file));
    for (int lines = 0; lines < 2; ++lines) text.resize(text.rfind('\n', text.size() - 2) + 1);
    scratch_.write(file, text);
    return text;
  }

  void expect_refused(const Words& words, const std::string& file, const std::string& before) {
    const Printed printed = run(words);
    EXPECT_EQ(printed.exit_code, 2) << fmt::format("{}\n{}", fmt::join(words, " "), printed.err);
    EXPECT_EQ(std::ranges::count(printed.err, '\n'), 1) << printed.err;
    EXPECT_NE(printed.err.find(file + ": found a run that was interrupted"), std::string::npos) << printed.err;
    EXPECT_EQ(Scratch::read(scratch_.path(file)), before) << fmt::format("{}", fmt::join(words, " "));
  }

  void expect_resumed(const Words& words, const std::string& file, const std::string& before) {
    const Printed printed = run(words);
    EXPECT_EQ(printed.exit_code, 0) << fmt::format("{}\n{}", fmt::join(words, " "), printed.err);
    const auto runs = read_runs(scratch_.path(file));
    ASSERT_EQ(runs.size(), 1U);
    EXPECT_EQ(runs[0].resumed, 1);
    EXPECT_TRUE(runs[0].ended);
    EXPECT_TRUE(Scratch::read(scratch_.path(file)).starts_with(before)) << "nothing is written twice";
  }

  Scratch scratch_;
};

const Words kTune{"tune",        "--no-verify", "--cluster", "./cluster.toml",    "--grid", "./grid.toml", "--schedule",
                  "tutel,fsmoe", "--out",       "r.jsonl",   "--strategy-layers", "1"};

TEST_F(Resumed, AFileNeverMixesTwoQuestions) {
  Words with_degrees = kTune;
  with_degrees.insert(with_degrees.end(), {"--degree-forward", "1", "--degree-backward", "1"});
  const std::string before = broken_off(with_degrees, "r.jsonl");
  expect_refused(kTune, "r.jsonl", before);
  Words again = kTune;
  again.push_back("--overwrite");
  ASSERT_EQ(run(again).exit_code, 0);
  const auto runs = read_runs(scratch_.path("r.jsonl"));
  ASSERT_EQ(runs.size(), 1U);
  int pipelined = 0;
  for (const CaseRecord& record : runs[0].cases) pipelined += record.degree_forward > 1;
  EXPECT_GT(pipelined, 10) << "degrees are the tuned ones";
}

// Whatever changes a record makes it another question.
TEST_F(Resumed, EachFlagThatChangesARecordIsInTheQuestion) {
  const Words changes[] = {
      {"--schedule", "fsmoe,tutel"}, {"--degree-forward", "2"}, {"--degree-backward", "3"}, {"--nearest"}};
  const std::string before = broken_off(kTune, "r.jsonl");
  for (const Words& change : changes) {
    Words words = kTune;
    const auto same = std::ranges::find(words, change.front());
    if (same != words.end()) words.erase(same, same + 2);
    words.insert(words.end(), change.begin(), change.end());
    expect_refused(words, "r.jsonl", before);
  }
  const Words simulate{"simulate",   "--cluster",   "./cluster.toml", "--layer", "./layer.toml",
                       "--schedule", "tutel,fsmoe", "--out",          "s.jsonl"};
  const std::string simulated = broken_off(simulate, "s.jsonl");
  for (const Words& change : {Words{"--sweep-degrees"}, {"--batch", "2"}, {"--capacity-rounding", "exact"}}) {
    Words words = simulate;
    words.insert(words.end(), change.begin(), change.end());
    expect_refused(words, "s.jsonl", simulated);
  }
  const Words reproduce{"reproduce", "fsmoe-fig6", "--out", "f.jsonl"};
  const std::string reproduced = broken_off(reproduce, "f.jsonl");
  expect_refused({"reproduce", "fsmoe-fig7", "--out", "f.jsonl"}, "f.jsonl", reproduced);
  expect_refused({"reproduce", "fsmoe-fig6", "--out", "f.jsonl", "--assume", "fsmoe-models"}, "f.jsonl", reproduced);
}

TEST_F(Resumed, WhatChangesNoRecordGoesOn) {
  for (const Words& more : {Words{}, {"--json"}}) {
    const std::string before = broken_off(kTune, "r.jsonl");
    Words words = kTune;
    words.insert(words.end(), more.begin(), more.end());
    expect_resumed(words, "r.jsonl", before);
  }
  const Words simulate{"simulate", "--layer", "./layer.toml", "--schedule", "tutel,fsmoe", "--out", "s.jsonl"};
  const std::string before = broken_off(simulate, "s.jsonl");
  Words traced = simulate;
  traced.insert(traced.end(), {"--trace", "t.json"});
  expect_resumed(traced, "s.jsonl", before);
  const std::string reproduced = broken_off({"reproduce", "fsmoe-fig6", "--out", "f.jsonl"}, "f.jsonl");
  expect_resumed({"reproduce", "--json", "fsmoe-fig6", "--out=f.jsonl"}, "f.jsonl", reproduced);
}

// The same names, other contents; and the same contents under other names.
TEST_F(Resumed, ContentsCountNotNames) {
  const auto with = [&](const std::string& name, const std::string& from, const std::string& to) {
    std::string text = Scratch::read(scratch_.path(name));
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << name << " has no " << from;
    return scratch_.write(name, text.replace(at, from.size(), to));
  };
  const Words simulate{"simulate",   "--cluster",   "./cluster.toml", "--layer", "./layer.toml",
                       "--schedule", "tutel,fsmoe", "--out",          "s.jsonl"};
  const std::string tuned = broken_off(kTune, "r.jsonl"), simulated = broken_off(simulate, "s.jsonl");
  std::filesystem::copy_file(scratch_.path("cluster.toml"), scratch_.path("copy.toml"));
  with("cluster.toml", "3.06e-10", "3.07e-10");
  expect_refused(kTune, "r.jsonl", tuned);
  expect_refused(simulate, "s.jsonl", simulated);
  std::filesystem::rename(scratch_.path("copy.toml"), scratch_.path("cluster.toml"));
  const std::string grid = Scratch::read(scratch_.path("grid.toml"));
  with("grid.toml", "only = [", "only = [ # fewer\n");
  expect_refused(kTune, "r.jsonl", tuned);
  scratch_.write("grid.toml", grid);
  with("layer.toml", "\n", "\n# a layer\n");
  expect_refused(simulate, "s.jsonl", simulated);
  expect_resumed(kTune, "r.jsonl", tuned);
}

// A sample's layers stand in another file, which counts too.
TEST_F(Resumed, TheGridThatASampleIsOfCounts) {
  namespace fs = std::filesystem;
  fs::copy(MOETUNE_SOURCE_DIR "/configs", scratch_.path("configs"), fs::copy_options::recursive);
  ::setenv("MOETUNE_CONFIG_DIR", scratch_.path("configs").c_str(), 1);
  const std::string before = broken_off(kTune, "r.jsonl"), whole = scratch_.path("configs/grids/fsmoe-b.toml");
  const std::string text = Scratch::read(whole);
  scratch_.write("configs/grids/fsmoe-b.toml", text + "# changed\n");
  expect_refused(kTune, "r.jsonl", before);
  scratch_.write("configs/grids/fsmoe-b.toml", text);
  expect_resumed(kTune, "r.jsonl", before);
  const std::string reproduced = broken_off({"reproduce", "fsmoe-fig6", "--out", "f.jsonl"}, "f.jsonl");
  const std::string printed = scratch_.path("configs/papers");
  for (const auto& entry : fs::directory_iterator(printed))
    if (entry.path().extension() == ".csv") {
      const std::string csv = Scratch::read(entry.path());
      std::ofstream(entry.path()) << csv << "#\n";
      expect_refused({"reproduce", "fsmoe-fig6", "--out", "f.jsonl"}, "f.jsonl", reproduced);
      std::ofstream(entry.path()) << csv;
      break;
    }
  ::unsetenv("MOETUNE_CONFIG_DIR");
}

// A complete file under its own name answers its question alone; a verb's own file takes a new run, and says so.
TEST_F(Resumed, BehindACompleteRun) {
  ASSERT_EQ(run(kTune).exit_code, 0);
  const std::string before = Scratch::read(scratch_.path("r.jsonl"));
  Printed printed = run(kTune, {"--nearest"});
  EXPECT_EQ(printed.exit_code, 2);
  EXPECT_NE(printed.err.find("r.jsonl: found a run with other flags"), std::string::npos) << printed.err;
  EXPECT_EQ(Scratch::read(scratch_.path("r.jsonl")), before);
  EXPECT_EQ(run(kTune).exit_code, 0) << "the same once more";
  EXPECT_EQ(read_runs(scratch_.path("r.jsonl")).size(), 2U);
  Words unnamed = kTune;
  unnamed.erase(std::ranges::find(unnamed, "--out"), std::ranges::find(unnamed, "--out") + 2);
  printed = run(unnamed);
  EXPECT_EQ(printed.err, "");
  printed = run(unnamed, {"--nearest"});
  EXPECT_EQ(printed.exit_code, 0);
  EXPECT_NE(printed.err.find("appending a new run"), std::string::npos) << printed.err;
}

}  // namespace
}  // namespace moe
