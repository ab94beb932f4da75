// Workloads: balanced is balanced on every rank, Zipf's frequencies, the hot expert, traces and their bad lines; all by
// seed, the same on every rank that gates.
#include "moe/layer/workload.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <numeric>

#include "moe/layer/gates/gate.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

LayerCase case_of(int64_t seq, int64_t experts, int64_t top_k, std::string_view gate = "switch") {
  LayerShape layer{.batch = 1, .seq = seq, .model_dim = 4, .hidden = 4, .heads = 2, .experts = experts};
  layer.top_k = top_k;
  layer.gate = gate;
  return complete(layer, {.nodes = 2, .ranks_per_node = 2, .mp = 2, .ep = 1, .esp = 2}, Rounding::ragged);
}

std::vector<int32_t> choices(const LayerCase& shape, std::string_view spec, int rank, Flow flow = Flow::sharded,
                             const LayerSeed& seed = {}) {
  const RankShape s = rank_shape(shape, rank, flow);
  Routing routing = make_routing(s);
  Workload(spec, "--workload").fill(s, seed, routing);
  EXPECT_TRUE(routing.preset);
  return routing.expert;
}

std::vector<int64_t> counts(const std::vector<int32_t>& experts, int64_t of, size_t step = 1) {
  std::vector<int64_t> all(of);
  for (size_t i = 0; i < experts.size(); i += step) ++all[experts[i]];
  return all;
}

class EveryWorkload : public testing::TestWithParam<std::string_view> {};

TEST_P(EveryWorkload, GivesDistinctExpertsBySeedWhoeverGates) {
  const LayerCase shape = case_of(24, 6, 3);
  const auto of_rank = [&](int rank) { return choices(shape, GetParam(), rank); };
  for (int rank = 0; rank < 4; ++rank) {
    const auto own = of_rank(rank);
    EXPECT_EQ(own.size(), 36u);
    for (size_t t = 0; t < own.size(); t += 3) {
      std::vector<int32_t> token(own.begin() + static_cast<std::ptrdiff_t>(t),
                                 own.begin() + static_cast<std::ptrdiff_t>(t + 3));
      std::ranges::sort(token);
      EXPECT_EQ(std::ranges::adjacent_find(token), token.end());
      EXPECT_TRUE(token.front() >= 0 && token.back() < 6);
    }
    EXPECT_EQ(own, of_rank(rank));
    EXPECT_NE(own, choices(shape, GetParam(), rank, Flow::sharded, {.seed = 2}));
    EXPECT_NE(own, choices(shape, GetParam(), rank, Flow::sharded, {.seed = 1, .layer = 1}));
    EXPECT_NE(own, of_rank((rank + 1) % 4)) << "every rank has tokens of its own";
  }
  auto group = of_rank(2);
  const auto other = of_rank(3);
  group.insert(group.end(), other.begin(), other.end());
  EXPECT_EQ(choices(shape, GetParam(), 2, Flow::tensor), group);
  EXPECT_EQ(choices(shape, GetParam(), 3, Flow::tensor), group);
}

INSTANTIATE_TEST_SUITE_P(All, EveryWorkload, testing::Values("balanced", "zipf:1.2", "hot:3"),
                         [](const auto& row) { return std::string(row.param.substr(0, 3)); });

TEST(BalancedWorkload, DiffersByOneAtMostOnEveryRank) {
  for (const int64_t tokens : {2, 5, 8, 13, 64})
    for (const int64_t experts : {1, 2, 5, 8, 16})
      for (const int64_t k : {1, 2, 3, 8}) {
        if (k > experts) continue;
        const auto all = counts(choices(case_of(2 * tokens, experts, k), "balanced", 3), experts);
        EXPECT_LE(std::ranges::max(all) - std::ranges::min(all), 1) << tokens << " " << experts << " " << k;
      }
}

TEST(ZipfWorkload, HasItsFrequencies) {
  for (const double exponent : {0.0, 0.5, 1.2}) {
    constexpr int64_t kTokens = 40'000;
    const auto drawn = choices(case_of(2 * kTokens, 8, 2), fmt::format("zipf:{}", exponent), 0);
    std::vector<double> share(8);
    for (size_t e = 0; e < 8; ++e) share[e] = std::pow(static_cast<double>(e + 1), -exponent);
    const double sum = std::accumulate(share.begin(), share.end(), 0.0);
    std::vector<double> either(8);  // chances of the first choice, and of either
    for (size_t a = 0; a < 8; ++a)
      for (size_t b = 0; b < 8; ++b) {
        if (a == b) continue;
        const double p = share[a] / sum * share[b] / (sum - share[a]);
        either[a] += p;
        either[b] += p;
      }
    const auto first = counts(drawn, 8, 2), all = counts(drawn, 8);
    for (size_t e = 0; e < 8; ++e) {
      const auto bound = [](double p) { return 5 * std::sqrt(p * (1 - p) / kTokens); };
      EXPECT_NEAR(static_cast<double>(first[e]) / kTokens, share[e] / sum, bound(share[e] / sum));
      EXPECT_NEAR(static_cast<double>(all[e]) / kTokens, either[e], bound(either[e]));
    }
  }
}

TEST(HotWorkload, IsWantedFirstByAllTokens) {
  const LayerCase shape = case_of(400, 4, 2);
  EXPECT_EQ(counts(choices(shape, "hot:3", 1), 4, 2), (std::vector<int64_t>{0, 0, 0, 200}));
  EXPECT_EQ(counts(choices(shape, "hot", 1), 4, 2), (std::vector<int64_t>{200, 0, 0, 0}));
  for (const int64_t others : counts(choices(shape, "hot:3", 1), 4)) EXPECT_GT(others, 40);
}

std::string complaint(std::string_view spec, const LayerCase& shape = case_of(4, 4, 2)) {
  try {
    choices(shape, spec, 0);
  } catch (const BadInput& e) {
    return e.what();
  }
  return "none";
}

TEST(Workload, RefusesWhatItDoesNotKnow) {
  for (const std::string_view spec :
       {"", "zipf", "zipf:x", "zipf:-1", "hot:", "hot:1.5", "balanced:2", "trace:", "even"})
    EXPECT_EQ(complaint(spec),
              fmt::format("--workload: found '{}', expected gate, balanced, zipf:S, hot, hot:EXPERT or "
                          "trace:FILE",
                          spec));
  EXPECT_EQ(complaint("hot:4"), "--workload: found expert 4, expected 0 to 3");
  for (const std::string_view gate : {"softmoe", "expert-choice"})
    EXPECT_EQ(
        complaint("balanced", case_of(4, 4, 2, gate)),
        fmt::format("--workload: gate {} does not choose each token's top k, so its choices can't be given", gate));
}

TEST(Workload, OfTheGateLeavesTheChoiceToIt) {
  const RankShape s = rank_shape(case_of(4, 4, 2), 0);
  Routing routing = make_routing(s);
  routing.preset = true;
  Workload("gate").fill(s, {}, routing);
  EXPECT_FALSE(routing.preset);
}

class TraceTest : public testing::Test {
 protected:
  std::string path() const { return scratch_.path("trace.csv"); }
  std::string complaint_of(const std::string& rows) {
    std::ofstream(path()) << "token,layer,experts\n" << rows;
    return complaint("trace:" + path());
  }
  Scratch scratch_;
};

TEST_F(TraceTest, ComesBackAsItWasRecorded) {
  const LayerCase shape = case_of(24, 6, 3);
  std::ofstream out(path());
  out << "# zipf\nlayer, experts, token\n";
  for (uint64_t layer = 0; layer < 2; ++layer)
    for (int rank = 3; rank >= 0; --rank) {
      const auto own = choices(shape, "zipf:1", rank, Flow::sharded, {.layer = layer});
      for (size_t t = 0; t < own.size(); t += 3)
        out << fmt::format("{},{} {} {},{}\n", layer, own[t], own[t + 1], own[t + 2],
                           12 * static_cast<size_t>(rank) + t / 3);
    }
  out << "1,of a longer one,9999\n" << std::flush;
  for (uint64_t layer = 0; layer < 2; ++layer)
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(choices(shape, "trace:" + path(), rank, Flow::tensor, {.seed = 9, .layer = layer}),
                choices(shape, "zipf:1", rank, Flow::tensor, {.layer = layer}));
}

TEST_F(TraceTest, NamesFileAndLineOfWhatIsWrong) {
  const std::string good = "0,0,0 1\n1,0,1 2\n2,0,3 0\n3,0,2 1\n4,0,0 1\n5,0,0 1\n6,0,0 1\n";
  EXPECT_EQ(complaint_of(good + "7,0,0 3\n"), "none");
  EXPECT_EQ(complaint_of(good), path() + ": layer 0: found no token 7, expected 0 to 7");
  for (const std::string_view experts : {"4 0", "-1 0", "2 2", "1", "0 1 2", "0;1", "", "0 x"})
    EXPECT_EQ(complaint_of(fmt::format("{}7,0,{}\n", good, experts)),
              fmt::format("{}:9: experts: found '{}', expected 2 different ones from 0 to 3", path(), experts));
  EXPECT_EQ(complaint_of("0,0,0 1\n0,0,0 1\n"), path() + ":3: found token 0 of layer 0 twice, expected it once");
  for (const std::string_view line : {"x,0,0 1", "0,0", "0,0,0 1,2", "-1,0,0 1"}) {
    const std::string found = complaint_of(std::string(line) + "\n");
    EXPECT_TRUE(found.starts_with(path() + ":")) << found;
    EXPECT_NE(found.find("line"), std::string::npos) << found;
  }
  EXPECT_NE(complaint("trace:" + path() + ".none").find(path() + ".none"), std::string::npos);
}

}  // namespace
}  // namespace moe
