#include "moe/serve/expert_placement.h"

#include <algorithm>
#include <bit>
#include <gtest/gtest.h>
#include <map>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/random.h"

namespace moe {
namespace {

using Sets = std::vector<uint32_t>;  // of experts, one a device

// The least tokens of the slowest device where experts may be split over the devices that hold them: by max-flow and
// min-cut, the most over all sets of experts of (their tokens / devices that hold any of them).
double least_of_slowest(const std::vector<double>& popularity, const Sets& held) {
  double most = 0;
  for (uint32_t experts = 1; experts < 1U << popularity.size(); ++experts) {
    double tokens = 0;
    for (size_t e = 0; e < popularity.size(); ++e)
      if (experts >> e & 1) tokens += popularity[e];
    const auto devices = std::ranges::count_if(held, [&](uint32_t set) { return (set & experts) != 0; });
    if (devices == 0) return 1e300;
    most = std::max(most, tokens / static_cast<double>(devices));
  }
  return most;
}

// Tries every choice of at most `max_experts` experts for every device. Devices are alike: their sets ascend.
double brute_force(const std::vector<double>& popularity, size_t devices, int max_experts) {
  Sets choices;
  for (uint32_t set = 1; set < 1U << popularity.size(); ++set)
    if (std::popcount(set) <= max_experts) choices.push_back(set);
  std::vector<size_t> at(devices, 0);
  double best = 1e300;
  for (;;) {
    Sets held;
    for (const size_t i : at) held.push_back(choices[i]);
    best = std::min(best, least_of_slowest(popularity, held));
    size_t d = devices;
    while (d > 0 && at[d - 1] + 1 == choices.size()) --d;
    if (d == 0) return best;
    const size_t next = at[d - 1] + 1;
    std::fill(at.begin() + static_cast<std::ptrdiff_t>(d) - 1, at.end(), next);
  }
}

std::vector<double> drawn_popularity(size_t experts, uint64_t number) {
  std::vector<double> popularity(experts);
  for (size_t e = 0; e < experts; ++e) {
    const double u = random_uniform(1, number, e);
    popularity[e] = random_bits(2, number, e) % 5 == 0 ? 0 : std::floor(400 * u * u * u);
  }
  popularity[number % experts] += 1;
  return popularity;
}

void expect_sound(const ExpertPlacement& placement, size_t experts, size_t devices, int max_experts) {
  ASSERT_EQ(placement.devices.size(), devices);
  std::vector<double> shares(experts);
  for (const auto& device : placement.devices) {
    EXPECT_LE(device.size(), static_cast<size_t>(max_experts));
    std::map<int, int> times;
    for (const HostedExpert& hosted : device) {
      EXPECT_EQ(++times[hosted.expert], 1);
      EXPECT_GT(hosted.share, 0);
      shares[hosted.expert] += hosted.share;
    }
  }
  for (const double share : shares) EXPECT_NEAR(share, 1, 1e-9);
}

TEST(ExpertPlacement, IsNearTheBestOfAllAndNeverSlowerThanUniform) {
  double ratios = 0;
  int cases = 0;
  for (uint64_t number = 0; number < 240; ++number) {
    const size_t devices = 2 + number % 3, experts = 2 + random_bits(3, 0, number) % (devices == 4 ? 4 : 5);
    const int least = static_cast<int>((experts + devices - 1) / devices);
    const int most = least + static_cast<int>(number / 3 % 3);
    const std::vector<double> popularity = drawn_popularity(experts, number);
    const ExpertPlacement placement = place_experts(popularity, static_cast<int>(devices), most);
    expect_sound(placement, experts, devices, most);
    const double ours = max_tokens(placement, popularity), best = brute_force(popularity, devices, most);
    EXPECT_GE(ours, best * (1 - 1e-9));
    EXPECT_LE(ours, max_tokens(uniform_placement(static_cast<int>(experts), static_cast<int>(devices)), popularity));
    ratios += ours / best;
    ++cases;
  }
  EXPECT_LE(ratios / cases, 1.05);
  std::printf("slowest device over the best: %.4f in the mean of %d cases\n", ratios / cases, cases);
}

TEST(ExpertPlacement, GivesDevicesInProportion) {
  // Of four devices, n = 2.4, 0.8, 0.8: two and a part, and the others fill the last two with it.
  const std::vector<double> popularity{240, 80, 80};
  const ExpertPlacement placement = place_experts(popularity, 4, 2);
  EXPECT_NEAR(max_tokens(placement, popularity), 100, 1.01);
  EXPECT_EQ(std::ranges::count_if(placement.devices, [](const auto& d) { return d.size() == 1 && d[0].expert == 0; }),
            2);
}

TEST(ExpertPlacement, KeepsExpertsWhereTheyAre) {
  const std::vector<double> even{10, 10, 10, 10};
  EXPECT_EQ(place_experts(even, 4, 4).devices[2].front().expert, 2);
  const std::vector<double> skewed{5, 70, 20, 5};
  const ExpertPlacement placement = place_experts(skewed, 4, 4);
  EXPECT_TRUE(placement.holds(1, 1));
}

TEST(ExpertPlacement, UniformByHand) {
  const ExpertPlacement more = uniform_placement(4, 2), fewer = uniform_placement(2, 4);
  EXPECT_TRUE(more.holds(0, 0) && more.holds(0, 1) && more.holds(1, 2) && more.holds(1, 3));
  EXPECT_TRUE(fewer.holds(0, 0) && fewer.holds(1, 0) && fewer.holds(2, 1) && fewer.holds(3, 1));
  EXPECT_DOUBLE_EQ(fewer.devices[3].front().share, 0.5);
}

TEST(ExpertPlacement, SplitsEveryTokenOnce) {
  for (uint64_t number = 0; number < 100; ++number) {
    const std::vector<double> popularity = drawn_popularity(8, number);
    const ExpertPlacement placement = place_experts(popularity, 5, 3);
    std::vector<int64_t> counts(8), found(8);
    for (size_t e = 0; e < counts.size(); ++e) counts[e] = static_cast<int64_t>(random_bits(7, number, e) % 100);
    const auto tokens = split_tokens(placement, counts);
    for (size_t d = 0; d < tokens.size(); ++d)
      for (size_t i = 0; i < tokens[d].size(); ++i) {
        const HostedExpert& hosted = placement.devices[d][i];
        found[hosted.expert] += tokens[d][i];
        EXPECT_NEAR(static_cast<double>(tokens[d][i]), hosted.share * static_cast<double>(counts[hosted.expert]), 1);
      }
    EXPECT_EQ(found, counts);
  }
}

TEST(ExpertPlacement, TiesGoToTheFirst) {
  const std::vector<double> popularity{3, 7, 7, 1};
  EXPECT_EQ(most_popular(popularity, 3), (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(most_popular(popularity, 9).size(), 4U);
}

TEST(ExpertPlacement, RefusesWhatItCannotPlace) {
  const std::vector<double> popularity{1, 1, 1, 1, 1}, negative{1, -1};
  EXPECT_THROW(place_experts(popularity, 2, 2), BadInput);
  EXPECT_THROW(place_experts(negative, 2, 2), BadInput);
  EXPECT_THROW(place_experts({}, 2, 2), BadInput);
}

}  // namespace
}  // namespace moe
