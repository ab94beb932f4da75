#include "moe/serve/path_profile.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/serve/synthetic_routing.h"

namespace moe {
namespace {

// The estimate of every expert, counted without the profile: by all tokens of `profiled` with the same path.
std::vector<double> counted_estimate(const RoutingTrace& profiled, const RoutingTrace& served, int layer, int length) {
  const auto path_of = [&](const RoutingTrace& trace, size_t token) {
    std::vector<int32_t> path;
    for (int i = layer - length; i < layer; ++i) path.push_back(trace.choices[i][token]);
    return path;
  };
  std::map<std::vector<int32_t>, std::map<int32_t, double>> next;
  std::map<int32_t, double> all;
  for (size_t t = 0; t < static_cast<size_t>(profiled.tokens()); ++t) {
    const int32_t chosen = profiled.choices[layer][t];
    ++next[path_of(profiled, t)][chosen];
    ++all[chosen];
  }
  std::vector<double> popularity(profiled.experts);
  for (size_t t = 0; t < static_cast<size_t>(served.batch_tokens); ++t) {
    const auto found = next.find(path_of(served, t));
    const auto& counts = found == next.end() ? all : found->second;
    double sum = 0;
    auto best = counts.begin();
    for (auto it = counts.begin(); it != counts.end(); ++it) {
      sum += it->second;
      if (it->second > best->second) best = it;
    }
    popularity[best->first] += best->second / sum;
  }
  return popularity;
}

TEST(PathProfile, EstimatesByTheLikeliestExpertOfEachPath) {
  const SyntheticRouting source{.layers = 6, .experts = 5, .seed = 3};
  const RoutingTrace profiled = generate_routing(source, 4, 300), served = generate_routing(source, 1, 400, 4);
  for (const int length : {1, 3, 4}) {
    const PathProfile profile(profiled, length);
    for (int layer = length; layer < source.layers; ++layer) {
      const std::vector<double> ours = profile.estimate(served, layer, 0);
      const std::vector<double> expected = counted_estimate(profiled, served, layer, length);
      for (size_t e = 0; e < ours.size(); ++e) EXPECT_NEAR(ours[e], expected[e], 1e-9) << length << " " << layer;
    }
  }
}

TEST(PathProfile, UnseenPathsHaveTheDistributionOfTheLayer) {
  const RoutingTrace profiled{3, 4, 4, {{0, 0, 1, 1}, {0, 0, 1, 1}, {2, 2, 3, 2}}};
  const PathProfile profile(profiled, 2);
  EXPECT_EQ(profile.paths(2), 2U);
  const std::vector<int32_t> seen{1, 1}, unseen{3, 0};
  EXPECT_DOUBLE_EQ(profile.followers(2, seen)[0].share, 0.5);
  EXPECT_EQ(profile.followers(2, unseen)[0].expert, 2);
  EXPECT_DOUBLE_EQ(profile.followers(2, unseen)[0].share, 0.75);
  EXPECT_THROW(profile.followers(1, seen), BadInput);
}

TEST(PathProfile, TwoExpertsOfATokenSplitIt) {
  const RoutingTrace profiled{2, 4, 4, {{0, 0, 0, 0}, {1, 1, 2, 3}}};
  const PathProfile profile(profiled, 1);
  EXPECT_EQ(profile.estimate(profiled, 1, 0, 1), (std::vector<double>{0, 2, 0, 0}));
  EXPECT_EQ(profile.estimate(profiled, 1, 0, 2), (std::vector<double>{0, 2, 1, 0}));
  EXPECT_EQ(profile.estimate(profiled, 1, 0, 4), (std::vector<double>{0, 2, 1, 1}));
}

// The best guess, computed from the source, against guesses by the profile of tokens that it has not seen.
TEST(PathProfile, GuessesAsWellAsIsPossible) {
  for (const int length : {1, 2, 3}) {
    const SyntheticRouting source{.layers = 5, .experts = 6, .skew = 0.8, .correlation = 0.6, .drift = 0, .seed = 5};
    const RoutingTrace profiled = generate_routing(source, 1, 200'000),
                       served = generate_routing(source, 1, 200'000, 1);
    const double best = best_guess_accuracy(source, 4, length);
    EXPECT_NEAR(PathProfile(profiled, length).guess_accuracy(served, 4) / best, 1, 0.01) << length;
    EXPECT_GT(best, 0.4);
  }
}

TEST(PathProfile, LongerPathsAllowBetterGuesses) {
  const SyntheticRouting source{.layers = 5, .experts = 6, .drift = 0};
  EXPECT_GT(best_guess_accuracy(source, 4, 2), best_guess_accuracy(source, 4, 1) + 0.005);
  EXPECT_GT(best_guess_accuracy(source, 4, 4), best_guess_accuracy(source, 4, 2) + 0.01);
}

TEST(PathProfile, WritesEveryPath) {
  const RoutingTrace profiled{3, 12, 3, {{0, 0, 11}, {1, 1, 10}, {2, 3, 2}}};
  const std::string path = std::filesystem::temp_directory_path() / ("moetune-paths-" + std::to_string(::getpid()));
  PathProfile(profiled, 2).write(path);
  const std::string text = text_of_file(path, "the profile");
  std::filesystem::remove(path);
  EXPECT_EQ(text,
            "layer,path,expert,share\n0,,0,0.666666667\n0,,11,0.333333333\n1,,1,0.666666667\n1,,10,0.333333333\n"
            "2,,2,0.666666667\n2,,3,0.333333333\n2,0 1,2,0.5\n2,0 1,3,0.5\n2,11 10,2,1\n");
}

TEST(PathProfile, RefusesLengthsThatLeaveNothing) {
  const RoutingTrace trace = generate_routing({.layers = 3, .experts = 4}, 1, 8);
  EXPECT_THROW(PathProfile(trace, 0), BadInput);
  EXPECT_THROW(PathProfile(trace, 3), BadInput);
  const RoutingTrace wide = generate_routing({.layers = 12, .experts = 256}, 1, 8);
  EXPECT_THROW(PathProfile(wide, 8), BadInput);
}

}  // namespace
}  // namespace moe
