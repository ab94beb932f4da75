// Assumption files, and that nothing is computed on more than print and they allow.
#include "commands/reproduce/assume.h"

#include <algorithm>

#include "commands/reproduce/fsmoe_reading.h"
#include "commands/reproduce/priced.h"
#include "commands/reproduce/study.h"
#include "commands/shared/printed.h"
#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/search/layer_search.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe::reproduce {
namespace {

constexpr std::string_view kHead = "schema = 1\nname = \"n\"\nsource = \"s\"\ntables = [\"fsmoe-fig6\"]\n";
constexpr std::string_view kRow =
    "[[comm]]\ncluster = \"testbed-b\"\nlabel = \"l\"\nop = \"alltoall\"\nnetwork = \"inter\"\nranks = 8\n"
    "alpha_s = 1.0\nbeta_s_per_byte = 2.0\n";

std::string file(std::string_view rest) { return std::string(kHead) + std::string(rest); }

TEST(Assume, EveryExampleIsReadAndForTablesThatThereAre) {
  const auto names = config_names("papers/assume");
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    const Assumptions assumed = find_assumptions(name);
    EXPECT_EQ(assumed.name, name);
    EXPECT_FALSE(assumed.tables.empty());
    for (const std::string& table : assumed.tables)
      EXPECT_EQ(std::ranges::count(commands::kPaperTables, table, &commands::PaperTable::name), 1)
          << name << ": " << table;
    for (const AssumedRow& row : assumed.rows) EXPECT_FALSE(row.label.empty());
    EXPECT_GT(lines_of(assumed).size(), assumed.rows.size());
  }
}

TEST(Assume, RowsReplaceTheirLikesOnTheirClusterAlone) {
  const Scratch scratch;
  const Assumptions assumed = read_assumptions(scratch.write("a.toml", file(kRow)));
  const Profile before = find_profile("testbed-b"), after = with_assumed_rows(before, &assumed);
  EXPECT_EQ(after.comm.size(), before.comm.size());
  int found = 0;
  for (const CommRow& row : after.comm)
    if (row.op == Op::alltoall && row.ranks == 8) {
      EXPECT_EQ(row.alpha_s, 1);
      EXPECT_EQ(row.beta_s_per_byte, 2);
      ++found;
    }
  EXPECT_EQ(found, 1);
  const Profile other = find_profile("testbed-a");
  EXPECT_EQ(with_assumed_rows(other, &assumed).comm.front().alpha_s, other.comm.front().alpha_s);
  EXPECT_EQ(with_assumed_rows(before, nullptr).comm.front().alpha_s, before.comm.front().alpha_s);
}

TEST(Assume, ContentionIsAValue) {
  const Scratch scratch;
  const Assumptions assumed =
      read_assumptions(scratch.write("a.toml", file("[[value]]\nname = \"contention\"\nvalue = 1.5\nlabel = \"l\"\n")));
  const Profile profile = with_assumed_rows(find_profile("testbed-b"), &assumed);
  EXPECT_EQ(profile.contention.intra_by_inter, 1.5);
  EXPECT_EQ(profile.contention.inter_by_intra, 1.5);
  EXPECT_EQ(profile.contention.compute_by_inter, 1);
  const Assumptions one = read_assumptions(
      scratch.write("b.toml", file("[[value]]\nname = \"contention:testbed-b\"\nvalue = 1.25\nlabel = \"l\"\n")));
  EXPECT_EQ(with_assumed_rows(find_profile("testbed-b"), &one).contention.intra_by_inter, 1.25);
  EXPECT_TRUE(with_assumed_rows(find_profile("testbed-a"), &one).contention.none());
}

TEST(Assume, WhatCannotBeReadIsOneLineWithItsPlace) {
  const Scratch scratch;
  const std::vector<std::pair<std::string, std::string>> rows{
      {file("[[comm]]\ncluster = \"c\"\n"), "label"},
      {file("speed = 3\n"), "speed"},
      {file("[[value]]\nname = \"x\"\nlabel = \"l\"\nvalue = \"much\"\n"), "value"},
      {"schema = 1\nname = \"n\"\nsource = \"s\"\ntables = []\n", "tables"},
      {"schema = 2\nname = \"n\"\nsource = \"s\"\ntables = [\"x\"]\n", "schema"},
      {file(fmt::format("{}ffn = \"gpt\"\n", kRow)), "ffn"}};
  for (const auto& [text, key] : rows) {
    const std::string path = scratch.write("bad.toml", text);
    const std::string message = error_of<BadInput>([&] { read_assumptions(path); });
    EXPECT_NE(message.find("bad.toml:"), std::string::npos) << message;
    EXPECT_NE(message.find(key), std::string::npos) << message;
  }
}

TEST(Assume, ATableRefusesAssumptionsForAnother) {
  const Assumptions assumed = find_assumptions("lina-a100");
  Study study;
  study.assumed = &assumed;
  const std::string message = error_of<BadInput>([&] { reproduce("monta-table8", study); });
  EXPECT_NE(message.find("lina-a100"), std::string::npos);
  EXPECT_NE(message.find("monta-table8"), std::string::npos);
}

// DeepSpeed-MoE's replicated tokens need an AllReduce inside a node, which the pricer would derive.
TEST(Assume, NothingIsDerivedUnlessAllowed) {
  const Profile profile = find_profile("testbed-b");
  const LayerCase shape = table2_case("gpt2-xl", profile, 2.4);
  LayerSearch search;
  std::set<std::string> missing;
  EXPECT_FALSE(tuned_from_print(search, "ds-moe-replicated", {profile, nullptr, missing}, shape));
  EXPECT_EQ(missing, std::set<std::string>{"AllReduce inside a node"});
  missing.clear();
  EXPECT_TRUE(tuned_from_print(search, "ds-moe", {profile, nullptr, missing}, shape));
  Assumptions assumed;
  assumed.derive = {"allreduce"};
  EXPECT_TRUE(tuned_from_print(search, "ds-moe-replicated", {profile, &assumed, missing}, shape));
  EXPECT_TRUE(missing.empty());
}

TEST(Assume, EveryRowThatLacksIsNamed) {
  Profile profile = find_profile("testbed-a");
  profile.nodes = 2;
  const LayerCase shape = table2_case("gpt2-xl", profile, 2.4);
  LayerSearch search;
  std::set<std::string> missing;
  EXPECT_FALSE(tuned_from_print(search, "fsmoe", {profile, nullptr, missing}, shape));
  EXPECT_EQ(missing, (std::set<std::string>{"testbed-a, allreduce over 2 ranks", "testbed-a, alltoall over 2 ranks"}));
}

}  // namespace
}  // namespace moe::reproduce
