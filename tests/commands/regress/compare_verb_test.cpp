// The verb as a user meets it: exit codes, and what stands where.
#include <nlohmann/json.hpp>

#include "tests/commands/cli/program.h"
#include "tests/commands/regress/compare_files.h"

namespace moe::regress {
namespace {

class CompareVerb : public RecordFiles {
 protected:
  void SetUp() override {
    RecordFiles::SetUp();
    CaseRecord floor;
    floor.key = "self-test/floor";
    floor.parameters = {{"fingerprint", ""}};
    floor.backend = "none";
    floor.summary = {{"between_sessions", 0.05}, {"within_session", 0.01}};
    file("floor.jsonl", {floor});
    file("base.jsonl", {made_layer("L", "fsmoe", 1), made_layer("L", "tutel", 1), made_op("alltoall", 1)});
  }
  Printed compare(const std::vector<CaseRecord>& head, std::vector<std::string> flags = {}) {
    file("head.jsonl", head);
    flags.insert(flags.begin(), {"compare", "base.jsonl", "head.jsonl"});
    return run_program(MOETUNE_PROGRAM, flags, folder_);
  }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
};

TEST_F(CompareVerb, ExitCodesSayWhatBecameOfIt) {
  const std::vector<CaseRecord> same{made_layer("L", "fsmoe", 1.01)}, slow{made_layer("L", "fsmoe", 1.2)},
      fast{made_layer("L", "fsmoe", 0.8)};
  EXPECT_EQ(compare(same).exit_code, 0);
  EXPECT_EQ(compare(same, {"--strict"}).exit_code, 0);
  EXPECT_EQ(compare(slow).exit_code, 0) << "not confirmed";
  EXPECT_EQ(compare(slow, {"--strict"}).exit_code, 5);
  EXPECT_EQ(compare(fast, {"--strict"}).exit_code, 5);
  EXPECT_EQ(compare(slow, {"--floor", "floor.jsonl"}).exit_code, 1);
  EXPECT_EQ(compare(slow, {"--floor", "floor.jsonl", "--strict"}).exit_code, 1);
  EXPECT_EQ(compare(fast, {"--floor", "floor.jsonl", "--strict"}).exit_code, 0);
  file("results/self-test.jsonl", std::string());
  std::filesystem::copy_file(folder_ + "/floor.jsonl", folder_ + "/results/self-test.jsonl",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(compare(slow).exit_code, 1) << "the floor is found where self-tests leave it";
}

TEST_F(CompareVerb, ARepairIsNoBadInput) {
  CaseRecord wrong = made_layer("L", "fsmoe", 1);
  wrong.status = CaseStatus::wrong;
  file("base.jsonl", {wrong});
  const Printed repaired = compare({made_layer("L", "fsmoe", 1)});
  EXPECT_EQ(repaired.exit_code, 0) << repaired.err;
  EXPECT_TRUE(has(repaired.out, "repaired: run/L/fsmoe: ")) << repaired.out;
  EXPECT_EQ(compare({wrong}).exit_code, 2);
}

TEST_F(CompareVerb, AFloorFileNeedsASelfTest) {
  const Printed bad = compare({made_layer("L", "fsmoe", 1)}, {"--floor", "base.jsonl"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_TRUE(has(bad.err, "base.jsonl: found no record self-test/floor")) << bad.err;
}

TEST_F(CompareVerb, NothingToCompareIsBadInputAndSaysWhy) {
  CaseRecord other = made_layer("L", "fsmoe", 1);
  other.parameters.set("dtype", "bfloat16");
  const Printed refused = compare({other});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(has(refused.out, "not compared: 1 (run/L/fsmoe): dtype: float32 against bfloat16\n")) << refused.out;
  EXPECT_TRUE(has(refused.out, "only in BASE: 2 (op/alltoall/1024, run/L/tutel)\n")) << refused.out;
  EXPECT_EQ(std::ranges::count(refused.err, '\n'), 1) << refused.err;
  EXPECT_EQ(compare({made_op("allreduce", 1)}).exit_code, 2) << "no common case";
  EXPECT_EQ(compare({}).exit_code, 2);
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--floor", "nosuch"}, {"--by", "nosuch"}, {"--filter", "nosuch=1"}}) {
    const Printed bad = compare({made_op("alltoall", 1)}, flags);
    EXPECT_EQ(bad.exit_code, 2);
    EXPECT_TRUE(has(bad.err, "nosuch")) << bad.err;
  }
  EXPECT_EQ(run_program(MOETUNE_PROGRAM, {"compare", "base.jsonl"}, folder_).exit_code, 2);
  EXPECT_EQ(run_program(MOETUNE_PROGRAM, {"compare", "base.jsonl", "nosuch.jsonl"}, folder_).exit_code, 2);
}

TEST_F(CompareVerb, WhatBrokeIsSaidFirst) {
  CaseRecord wrong = made_layer("L", "fsmoe", 1);
  wrong.status = CaseStatus::wrong;
  wrong.reason = "3 wrong elements";
  const Printed printed = compare({wrong, made_op("alltoall", 1)});
  EXPECT_EQ(printed.exit_code, 1);
  EXPECT_TRUE(printed.out.starts_with("broken: run/L/fsmoe: ok -> wrong: 3 wrong elements\n")) << printed.out;
  EXPECT_EQ(compare({wrong}).exit_code, 1) << "though nothing was timed";
}

TEST_F(CompareVerb, TablesHaveWhatIsNotTheSame) {
  const std::vector<CaseRecord> head{made_layer("L", "fsmoe", 1.2), made_layer("L", "tutel", 1.5),
                                     made_op("alltoall", 1)};
  const Printed some = compare(head);
  EXPECT_LT(some.out.find("run/L/tutel"), some.out.find("run/L/fsmoe")) << "worst first";
  EXPECT_TRUE(has(some.out, "1.500x  AMBG")) << some.out;
  EXPECT_TRUE(has(some.out, "SAME: 1 of 3")) << some.out;
  EXPECT_FALSE(has(some.out, "op/alltoall/1024"));
  EXPECT_TRUE(has(compare(head, {"--all"}).out, "op/alltoall/1024"));
  const Printed markdown = compare(head, {"--markdown"});
  EXPECT_TRUE(has(markdown.out, "| run/L/tutel | time | 1.00 s | 1.50 s | 1.500x | AMBG |\n")) << markdown.out;
  EXPECT_TRUE(has(markdown.out, "\n- SAME: 1 of 3")) << markdown.out;
  EXPECT_TRUE(has(compare(head, {"--by", "schedule"}).out, "\n  fsmoe ")) << "a group of its own";
}

TEST_F(CompareVerb, NamesOfRecordsAreShownAsTheyAre) {
  const std::string name = "<img src=x>\x1b[2J\x07";
  file("base.jsonl", {made_layer(name, "fsmoe", 1), made_op("[a](b)", 1)});
  const std::vector<CaseRecord> head{made_layer(name, "fsmoe", 1.5)};
  const Printed text = compare(head), markdown = compare(head, {"--markdown"});
  EXPECT_TRUE(has(text.out, "run/<img src=x>?[2J?/fsmoe ")) << text.out;
  EXPECT_TRUE(has(text.out, "only in BASE: 1 (op/[a](b)/1024)")) << text.out;
  EXPECT_TRUE(has(markdown.out, "| run/&#60;img src=x&#62;?\\[2J?/fsmoe |")) << markdown.out;
  EXPECT_TRUE(has(markdown.out, "(op/\\[a\\](b)/1024)")) << markdown.out;
}

TEST_F(CompareVerb, ABrokenOffBaselineIsComparedAndSaidToBeOne) {
  file("base.jsonl", lines_of(made_header(), {made_op("alltoall", 1)}, false));
  const Printed printed = compare({made_op("alltoall", 1), made_op("allreduce", 1)});
  EXPECT_EQ(printed.exit_code, 0);
  EXPECT_TRUE(has(printed.out, "BASE: base.jsonl, 2025-01-01T00:00:00Z, 0123456789ab; this run was interrupted\n"))
      << printed.out;
  EXPECT_TRUE(has(printed.out, "only in HEAD: 1 (op/allreduce/1024)\n"));
}

TEST_F(CompareVerb, TheDocumentHasItAll) {
  const Printed printed = compare({made_layer("L", "fsmoe", 1.2), made_op("b", 1)}, {"--json"});
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  const auto json = nlohmann::json::parse(printed.out);
  EXPECT_EQ(json["cases"].at(0)["verdict"], "AMBG");
  EXPECT_DOUBLE_EQ(json["cases"].at(0)["ratio"], 1.2);
  EXPECT_TRUE(json["cases"].at(0)["floor"].is_null());
  EXPECT_EQ(json["groups"].at(0)["group"], "run fsmoe");
  EXPECT_EQ(json["only_in_base"].size(), 2U);
  EXPECT_EQ(json["only_in_head"], nlohmann::json::array({"op/b/1024"}));
  EXPECT_EQ(json["base"]["runs"].at(0)["commit"], "0123456789ab");
  EXPECT_TRUE(json["base"]["runs"].at(0)["ended"]);
}

}  // namespace
}  // namespace moe::regress
