// What verbs do with the files that they are told to write, and with stdout, where these are not plain files.
#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sstream>

#include "tests/base/scratch.h"
#include "tests/commands/cli/program.h"

namespace moe {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class Files : public testing::Test {
 protected:
  void SetUp() override { scratch_.write("ops.jsonl", records()); }

  static constexpr const char* kRun =
      R"({"kind":"run","schema":1,"started":"t","argv":["a"],"config_digest":"d","git":{},"compiler":"c",)"
      R"("libraries":{},"machine":{},"environment":{}})"
      "\n";

  // A microbench of two sizes of one GEMM.
  static std::string records() {
    std::string text = kRun;
    for (const double flops : {1e9, 2e9, 4e9, 8e9})
      text += fmt::format(
          R"({{"kind":"case","key":"op/gemm/{0}","status":"ok","parameters":{{"op":"gemm","dtype":"float32",)"
          R"("cluster":"c","nodes":2,"ranks_per_node":2,"flops":{0},"gemms":1}},"backend":"local","emulated":false,)"
          R"("dilation":1.0,"samples":{{}},"summary":{{"median_s":{1}}},"prediction":{{}}}})"
          "\n",
          flops, 1e-4 + flops * 1e-13);
    return text + R"({"kind":"end","ended":"t"})" + "\n";
  }

  // A verb for each flag that names a file written whole; the file comes last.
  static std::vector<Words> writers() {
    return {{"fit", "--records", "ops.jsonl", "--out"},
            {"simulate", "--schedule", "tutel", "--trace"},
            {"simulate", "--schedule", "tutel", "--layers", "2", "--trace"}};
  }

  Printed run(Words arguments, const std::string& last = "") {
    if (!last.empty()) arguments.push_back(last);
    return run_program(MOETUNE_PROGRAM, arguments, scratch_.path(""));
  }

  Printed run_into_full(const Words& arguments) {
    Words words{"-c", R"(exec "$0" "$@" >/dev/full)", MOETUNE_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return run_program("/bin/sh", words, scratch_.path(""));
  }

  Scratch scratch_;
};

TEST_F(Files, AreWrittenThroughLinks) {
  for (const Words& writer : writers()) {
    fs::remove(scratch_.path("link"));
    scratch_.write("there", R"({"displayTimeUnit": old)");  // or nothing that a timeline replaces
    fs::create_symlink("there", scratch_.path("link"));
    const Printed printed = run(writer, "link");
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    EXPECT_TRUE(fs::is_symlink(scratch_.path("link"))) << writer.front();
    EXPECT_GT(fs::file_size(scratch_.path("there")), 100U) << writer.front();
  }
}

TEST_F(Files, DevicesStayDevices) {
  for (const Words& writer : writers()) {
    const Printed printed = run(writer, "/dev/null");
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    EXPECT_TRUE(fs::is_character_file("/dev/null"));
  }
}

// As a run leaves them that was ended while it measured tasks, the first that it measures.
TEST_F(Files, RecordsOfTasksAloneAreRefused) {
  scratch_.write(
      "tasks.jsonl",
      std::string(kRun) +
          R"({"kind":"case","key":"t/gate","status":"ok","parameters":{"cluster":"c","nodes":1,"ranks_per_node":2,)"
          R"("op":"task","name":"gate","phase":"forward","dtype":"float32","call":1,"flop":7e7,"layer":"x"},)"
          R"("backend":"local","emulated":false,"dilation":1,"samples":{"seconds":[[6e-4]]},)"
          R"("summary":{"median_s":6e-4},"prediction":{}})"
          "\n");
  const Printed printed = run({"fit", "--records", "tasks.jsonl"});
  EXPECT_EQ(printed.exit_code, 2);
  EXPECT_EQ(printed.err,
            "moetune: tasks.jsonl: found only cases of tasks, expected cases of collectives or computations\n");
}

// Its own input, or its own records: a file is replaced by its like alone.
TEST_F(Files, NothingElseIsReplaced) {
  const std::string profile = run({"fit", "--records", "ops.jsonl", "--json"}).out;
  const fs::path made = scratch_.path("results/c-fitted.toml");
  ASSERT_TRUE(fs::exists(made)) << profile;
  fs::copy(made, scratch_.path("c.toml"));
  const std::vector<std::pair<Words, std::string>> refused{
      {{"fit", "--records", "ops.jsonl", "--out", "./ops.jsonl"}, "ops.jsonl"},
      {{"simulate", "--schedule", "tutel", "--trace", "c.toml"}, "c.toml"},
      {{"simulate", "--schedule", "tutel", "--layers", "2", "--trace", "c.toml"}, "c.toml"},
      {{"tune", "--no-verify", "--grid", "fsmoe-30-b", "--schedule", "tutel", "--trace", "ops.jsonl"}, "ops.jsonl"}};
  for (const auto& [words, file] : refused) {
    const std::string before = Scratch::read(scratch_.path(file));
    const Printed printed = run(words);
    EXPECT_EQ(printed.exit_code, 2) << fmt::to_string(fmt::join(words, " "));
    EXPECT_NE(printed.err.find(file + ": found a file "), std::string::npos) << printed.err;
    EXPECT_EQ(Scratch::read(scratch_.path(file)), before);
  }
  const Printed both =
      run({"tune", "--no-verify", "--grid", "fsmoe-30-b", "--schedule", "tutel", "--out", "same", "--trace", "same"});
  EXPECT_EQ(both.exit_code, 2) << both.err;
  EXPECT_EQ(both.err, "moetune: --out: found same, which --trace writes too, expected another file\n");
  EXPECT_FALSE(fs::exists(scratch_.path("same")));
}

TEST_F(Files, WhatCannotBeWrittenIsOneLineAndExitCode2) {
  fs::create_directories(scratch_.path("folder"));
  fs::create_symlink("folder", scratch_.path("to-folder"));
  for (const Words& writer : writers())
    for (const std::string target : {"folder", "to-folder", "ops.jsonl/below", "/dev/full"}) {
      Words quietly = writer;
      quietly.insert(quietly.begin() + 1, "--quiet");  // which leaves out a timeline's size
      const Printed printed = run(quietly, target);
      EXPECT_EQ(printed.exit_code, 2) << fmt::format("{} {}: {}", writer.front(), target, printed.err);
      EXPECT_EQ(std::ranges::count(printed.err, '\n'), 1) << printed.err;
      EXPECT_NE(printed.err.find(target + ": cannot be written"), std::string::npos) << printed.err;
    }
  for (const auto& entry : fs::recursive_directory_iterator(scratch_.path(""))) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(name == "folder" || name == "to-folder" || name == "ops.jsonl" || name.starts_with("std")) << name;
  }
}

// A file that is opened where stderr is closed must not get its number: what is said would end up in it.
TEST_F(Files, WhatIsSaidIsInNoFileWhereStderrIsClosed) {
  const Words words{"-c",    R"(exec "$0" "$@" 2>&-)", MOETUNE_PROGRAM, "simulate", "--schedule", "tutel",
                    "--out", "closed.jsonl",           "--nearest",     "--hidden", "4097"};
  EXPECT_EQ(run_program("/bin/sh", words, scratch_.path("")).exit_code, 0);
  std::istringstream text(Scratch::read(scratch_.path("closed.jsonl")));
  for (std::string line; std::getline(text, line);) EXPECT_TRUE(line.starts_with('{')) << line;
}

TEST_F(Files, AFullStdoutIsExitCode2WhateverGoesThere) {
  const std::vector<Words> verbs{{"list"},
                                 {"simulate", "--schedule", "tutel"},
                                 {"simulate"},
                                 {"tune", "--no-verify", "--schedule", "tutel", "--grid", "fsmoe-30-b"},
                                 {"memory"},
                                 {"placement"},
                                 {"reproduce", "monta-table8"},
                                 {"fit", "--records", "ops.jsonl", "--out", "fitted.toml"}};
  for (const Words& verb : verbs)
    for (const bool json : {false, true}) {
      Words words = verb;
      if (json) words.push_back("--json");
      const Printed printed = run_into_full(words);
      EXPECT_EQ(printed.exit_code, 2) << fmt::format("{} {}", fmt::join(words, " "), printed.err);
      EXPECT_TRUE(printed.err.ends_with("moetune: stdout: cannot be written\n")) << printed.err;
    }
  for (const Words& help : {Words{"--help"}, Words{"--version"}, Words{"simulate", "--help"}})
    EXPECT_EQ(run_into_full(help).exit_code, 2) << fmt::format("{}", fmt::join(help, " "));
}

}  // namespace
}  // namespace moe
