// The answer of `tune` to one layer or model, as a user meets it: what it says holds for the commands that it names.
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/program_test.h"

namespace moe {
namespace {

using Json = nlohmann::json;

class AnswerVerb : public ProgramTest {
 protected:
  Printed tune(std::vector<std::string> words) {
    words.insert(words.begin(), {"tune", "--no-verify", "-o", "answer.jsonl", "--overwrite"});
    return run(words);
  }
  Json answer(std::vector<std::string> words) {
    words.push_back("--json");
    const Printed printed = tune(words);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    return Json::parse(printed.out, nullptr, false);
  }
  // Runs what stands behind NEXT, as JSON, instead of its timeline.
  Json next_of(const std::vector<std::string>& words) {
    const Printed printed = tune(words);
    const std::string begin = "NEXT   ./moetune ";
    const size_t at = printed.out.find(begin);
    EXPECT_NE(at, std::string::npos) << printed.out << printed.err;
    std::istringstream line(printed.out.substr(at + begin.size(), printed.out.find('\n', at) - at - begin.size()));
    std::vector<std::string> command;
    for (std::string word; line >> word;) command.push_back(word);
    command.push_back("--json");
    const Printed next = run(command);
    EXPECT_EQ(next.exit_code, 0) << next.err;
    return Json::parse(next.out, nullptr, false);
  }
};

TEST_F(AnswerVerb, NextIsAboutWhatWasRecommended) {
  using Words = std::vector<std::string>;
  for (const Words& words :
       {Words{"--batch", "4", "--seq", "512", "--model-dim", "2048"},
        Words{"--batch", "4", "--model-dim", "2048", "--degree-forward", "7", "--schedule", "fsmoe,tutel"},
        Words{"--model", "gpt2-xl@fsmoe"}, Words{"--model", "gpt2-xl@fsmoe", "--layers", "1"},
        Words{"--layers", "1", "--dtype", "bfloat16", "--cluster", "h100-8"},
        Words{"--nodes", "4", "--batch", "4", "--nearest"},
        Words{"--capacity-factor", "none", "--batch", "2", "--max-input", "1G", "--node-limit", "2", "--bias"},
        Words{"--layers", "4", "--micro-batches", "3", "--pipeline", "1f1b", "--schedule", "tutel,fsmoe"},
        Words{"--cluster", "h100-deepep-8-nodes", "--nodes", "16", "--model", "qwen3-30b-a3b", "--layers", "4",
              "--zero", "1", "--recompute", "selective", "--ep", "16", "--nearest"},
        Words{"--shape", "auto", "--cluster", "h100-deepep-8-nodes", "--nodes", "4", "--model", "qwen3-30b-a3b",
              "--layers", "2", "--schedule", "ds-moe", "--zero", "0", "--pipeline", "1f1b"},
        Words{"--shape", "auto", "--cluster", "h100-8", "--model", "gpt-oss-20b", "--schedule", "tutel,fsmoe"},
        Words{"--shape", "auto", "--cluster", "h100-8", "--experts", "12", "--dtype", "bfloat16", "--batch", "2"}}) {
    const Json use = answer(words)["use"], next = next_of(words);
    const Json& row = next.contains("schedules") ? next["schedules"][0] : next;
    const double seconds = row.contains("total_s") ? row["total_s"].get<double>()
                                                   : row["forward_s"].get<double>() + row["backward_s"].get<double>();
    EXPECT_NEAR(seconds / (use["total_s"].get<double>() - use["expert_sums_s"].get<double>()), 1, 1e-9) << words[1];
    EXPECT_EQ(row["schedule"], use["schedule"]);
    EXPECT_EQ(row["degree_forward"], use["degree_forward"]);
    EXPECT_EQ(row["memory_bytes"], use["memory_bytes"]);
  }
}

TEST_F(AnswerVerb, NamingGroupsKeepsTheGlobalBatch) {
  const std::vector<std::string> words{"--shape", "auto",        "--cluster",  "h100-8",
                                       "--model", "olmoe-1b-7b", "--schedule", "tutel"};
  const Json free = answer(words);
  for (const auto& [flag, value] : {std::pair{"--mp", "8"}, {"--mp", "2"}, {"--ep", "4"}, {"--pp", "2"}}) {
    std::vector<std::string> named = words;
    named.insert(named.end(), {flag, value});
    const Json kept = answer(named);
    EXPECT_EQ(kept["shapes"]["global_batch"], free["shapes"]["global_batch"]) << flag;
    EXPECT_GE(kept["use"]["total_s"], free["use"]["total_s"]) << flag << ": fewer shapes hold none that is faster";
    EXPECT_EQ(kept["layer"][std::string(flag).substr(2)], std::stoi(value));
  }
}

TEST_F(AnswerVerb, OneMicroBatchCanBeAskedForInASearch) {
  std::vector<std::string> words{"--shape", "auto", "--cluster",  "h100-8", "--model",  "olmoe-1b-7b",
                                 "--batch", "4",    "--schedule", "tutel",  "--layers", "4"};
  const auto several = [](const Json& shapes) {
    return std::ranges::any_of(shapes["ranked"], [](const Json& shape) { return shape["micro_batches"] > 1; });
  };
  const Json free = answer(words)["shapes"];
  words.insert(words.end(), {"--micro-batches", "1"});
  const Json one = answer(words)["shapes"];
  EXPECT_TRUE(several(free)) << "else the flag decides nothing here";
  EXPECT_FALSE(several(one));
  EXPECT_EQ(one["global_batch"], free["global_batch"]);
  EXPECT_LT(one["shapes"], free["shapes"]);
}

// Lines of commands to copy, and of files, are as long as they are.
TEST_F(AnswerVerb, LinesKeepTheirWidth) {
  const auto check = [](const Printed& printed) {
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    std::istringstream lines(printed.out);
    for (std::string line; std::getline(lines, line);)
      EXPECT_TRUE(line.size() <= 120 || line.find("./moetune ") != std::string::npos) << line;
    return printed.out;
  };
  const std::string parts = check(tune({"--batch", "4", "--mp", "2", "--esp", "4", "--nearest", "--all"}));
  EXPECT_NE(parts.find("that can't be used here:\n    monta-baseline, monta-o1, monta-o2 and 2 more: shards experts "),
            std::string::npos)
      << parts;
  check(tune({"--cluster", "testbed-a"}));
  check(run({"simulate", "--model", "gpt2-xl@fsmoe", "--schedule", "tutel,lina,fsmoe"}));
  check(run({"simulate", "--batch", "4", "--model-dim", "2048", "--schedule", "all"}));
  check(tune({"--model", "gpt2-xl@fsmoe", "--current", "tutel:2", "--top", "30"}));
}

// Whatever is asked, the answer is on one page, with all of its parts; the long one has what the short one leaves out.
TEST_F(AnswerVerb, IsAtMost25Lines) {
  using Words = std::vector<std::string>;
  for (const Words& words :
       {Words{"--batch", "1"}, Words{"--batch", "4", "--current", "tutel:2:3"},
        Words{"--model", "gpt2-xl@fsmoe", "--layers", "3"},
        Words{"--cluster", "testbed-a", "--batch", "2", "--shape", "auto"},
        Words{"--model", "gpt2-xl@fsmoe", "--shape", "auto", "--layers", "4", "--current", "ds-moe"},
        Words{"--model", "mixtral-7b", "--cluster", "h100-deepep-4-nodes", "--shape", "auto", "--layers", "2",
              "--nearest"},
        Words{"--model", "qwen3-30b-a3b", "--cluster", "h100-deepep-8-nodes", "--shape", "auto", "--layers", "1"},
        Words{"--model", "olmoe-1b-7b", "--cluster", "h100-8", "--shape", "auto", "--layers", "2", "--current",
              "fsmoe:7:1"},
        Words{"--model", "gpt-oss-20b", "--cluster", "h100-deepep-1-node", "--layers", "2", "--zero", "1"}}) {
    const Printed printed = tune(words);
    ASSERT_EQ(printed.exit_code, 0) << printed.err;
    const auto lines = std::ranges::count(printed.out, '\n');
    EXPECT_LE(lines, 25) << printed.out;
    EXPECT_GE(lines, 17) << printed.out;
    const bool shapes = std::ranges::find(words, "--shape") != words.end();
    for (const char* part : {"\nUSE    ", "\nWHY    ", "\nSAFE?  ", "\nSET IT ", "\nNEXT   ", "a rank needs", "tutel",
                             "critical path: ", "all settings: ./moetune export "})
      EXPECT_NE(printed.out.find(part), std::string::npos) << part << printed.out;
    for (const char* part : {"\nSHAPE  ", " shapes of a global batch of ", "left out: ", "less memory"})
      EXPECT_EQ(printed.out.find(part) != std::string::npos, shapes) << part << printed.out;
    Words longer = words;
    longer.insert(longer.end(), {"--top", "30"});
    EXPECT_GT(std::ranges::count(tune(longer).out, '\n'), lines);
  }
}

TEST_F(AnswerVerb, WhatCannotBeUsedIsOneLine) {
  const auto said = [&](const std::vector<std::string>& words) {
    const Printed printed = tune(words);
    EXPECT_EQ(printed.exit_code, 2) << words[0];
    EXPECT_EQ(std::ranges::count(printed.err, '\n'), 1) << printed.err;
    return printed.err;
  };
  EXPECT_NE(said({"--shape", "auto", "--pp", "4"}).find("--pp: found 4, expected at most 1"), std::string::npos);
  EXPECT_NE(
      said({"--batch", "1", "--degree-forward", "3", "--schedule", "ds-moe"}).find("every schedule: has degree 1"),
      std::string::npos);
  EXPECT_NE(said({"--shape", "auto", "--cluster", "h100-8", "--batch", "1"}).find("no gemm row for float32"),
            std::string::npos);
  EXPECT_NE(said({"--shape", "auto", "--mp", "3", "--batch", "1"}).find("found no groups of 32 ranks"),
            std::string::npos);
}

// A fit that is no line is WEAK, and what it prices is doubtful.
TEST_F(AnswerVerb, StrictEndsWithFiveWhereAFitIsWeak) {
  const auto exit_code = [&](const std::vector<std::string>& words) {
    const Printed printed = run_program(MOETUNE_PROGRAM, words, folder_);
    if (printed.exit_code == 2) ADD_FAILURE() << printed.err;
    return printed.exit_code;
  };
  for (const bool bent : {false, true}) {
    std::ofstream csv(folder_ + "/s.csv");
    csv << "op,network,ranks,bytes,seconds\n";
    for (int i = 0; i < 12; ++i)
      csv << fmt::format("alltoall,inter,8,{},{}\n", 1 << (16 + i / 2),
                         1e-3 + (bent && i > 7 ? 0.5 * (i % 2) : 0) + 1e-9 * (1 << (16 + i / 2)));
    csv.close();
    EXPECT_EQ(
        exit_code({"import", "csv", "s.csv", "--nodes", "8", "--ranks-per-node", "4", "-o", "r.jsonl", "--overwrite"}),
        0);
    EXPECT_EQ(exit_code({"fit", "--records", "r.jsonl", "-o", "p.toml"}), 0);
    EXPECT_EQ(exit_code({"fit", "--records", "r.jsonl", "--out", "p.toml", "--strict"}), bent ? 5 : 0);
    std::filesystem::copy_file(folder_ + "/p.toml", folder_ + "/mine.toml",
                               std::filesystem::copy_options::overwrite_existing);
    std::ofstream(folder_ + "/mine.toml", std::ios::app)
        << "\n[[comm]]\nop = \"allreduce\"\nnetwork = \"inter\"\nranks = 8\nalpha_s = 1e-4\nbeta_s_per_byte = 1e-10\n"
           "\n[[comm]]\nop = \"allgather\"\nnetwork = \"intra\"\nranks = 4\nalpha_s = 1e-4\nbeta_s_per_byte = 1e-10\n"
           "\n[[comm]]\nop = \"reducescatter\"\nnetwork = \"intra\"\nranks = 4\nalpha_s = 1e-4\nbeta_s_per_byte = "
           "1e-10\n"
           "\n[[compute]]\nop = \"gemm\"\nalpha_s = 1e-5\nbeta_s_per_flop = 1e-14\n";
    const std::vector<std::string> tune{"tune", "--no-verify", "--cluster", "./mine.toml", "--batch",
                                        "1",    "--out",       "t.jsonl",   "--overwrite"};
    std::vector<std::string> strict = tune;
    strict.emplace_back("--strict");
    EXPECT_EQ(exit_code(tune), 0);
    EXPECT_EQ(exit_code(strict), bent ? 5 : 0);
  }
}

}  // namespace
}  // namespace moe
