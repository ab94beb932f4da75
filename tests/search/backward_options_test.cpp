// What is left of many backwards to choose from: few, the fastest without slices among them, hardly slower with any.
#include <algorithm>
#include <gtest/gtest.h>

#include "moe/base/random.h"
#include "moe/search/detail/model_partition.h"

namespace moe::search {
namespace {

constexpr uint64_t kDraws = 200;

class Draw {
 public:
  explicit Draw(uint64_t index) : index_(index) {}
  double between(double least, double most) {
    return least + (most - least) * static_cast<double>(random_bits(3, stream_++, index_) >> 11) * 0x1p-53;
  }

 private:
  uint64_t index_, stream_ = 0;
};

// Backwards of degrees 1 to `degrees`: start-up times grow with the degree, what is exposed falls. A slice that a
// longer pass hides is hidden beside the longer pass alone.
BackwardOptions drawn(Draw& draw, int degrees) {
  BackwardOptions options;
  const double work = draw.between(5, 20), exposed = draw.between(1, 30), start = draw.between(0.001, 0.3);
  for (int r = 1; r <= degrees; ++r) {
    SplitPaths p;
    p.neither = work + exposed / r + start * r;
    p.first = p.neither * draw.between(0.3, 1);
    p.second = p.neither * draw.between(0.3, 1);
    p.both = std::min(p.first, p.second) * draw.between(0.1, 1);
    options.add({r}, p);
  }
  return options;
}

double least(const BackwardOptions& options, double moe_s, double dense_s) {
  double least = std::numeric_limits<double>::infinity();
  for (const SplitPaths& p : options.paths) least = std::min(least, p.seconds(moe_s, dense_s));
  return least;
}

TEST(BackwardsToChooseFrom, AreFewAndHardlySlower) {
  size_t most = 0;
  double worst = 1;
  for (uint64_t i = 0; i < kDraws; ++i) {
    Draw draw(i);
    const BackwardOptions all = drawn(draw, 1 + static_cast<int>(i) % 150);
    BackwardOptions few = all;
    few.keep_best_options();
    ASSERT_LE(few.paths.size(), kMaxBackwards);
    ASSERT_EQ(few.paths.size(), few.options.size());
    if (all.paths.size() <= kMaxBackwards) {
      EXPECT_EQ(few.paths.size(), all.paths.size());
    }
    EXPECT_EQ(least(few, 0, 0), least(all, 0, 0));
    for (size_t k = 0; k < few.paths.size(); ++k) {
      const auto at = std::ranges::find(all.options, few.options[k].degree, &BackwardOption::degree);
      ASSERT_NE(at, all.options.end());
      EXPECT_EQ(all.paths[at - all.options.begin()].neither, few.paths[k].neither);
    }
    for (int slices = 0; slices < 100; ++slices) {
      const double moe_s = draw.between(0, 60), dense_s = draw.between(0, 60);
      worst = std::max(worst, least(few, moe_s, dense_s) / least(all, moe_s, dense_s));
    }
    most = std::max(most, all.paths.size());
  }
  EXPECT_GT(most, 20U);
  EXPECT_LT(worst, 1.05);
  RecordProperty("slower", std::to_string(worst));
}

}  // namespace
}  // namespace moe::search
