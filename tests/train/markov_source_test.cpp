// The entropies that the source names against sums over whole texts, and against what it really writes.
#include <algorithm>
#include <boost/math/special_functions/digamma.hpp>
#include <cmath>
#include <gtest/gtest.h>
#include <map>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/train/token_source.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

// Probabilities of all texts of a length, made longer token by token from nothing but the source's table.
class TextLaw {
 public:
  explicit TextLaw(const MarkovSource& source) : source_(source), width_(source.vocabulary()) {
    for (int64_t context = 0; context < source.contexts(); ++context) law_.push_back(source.stationary(context));
  }
  void lengthen() {
    std::vector<double> longer(law_.size() * width_);
    for (size_t text = 0; text < law_.size(); ++text)
      for (int64_t next = 0; next < width_; ++next)
        longer[text * width_ + next] = law_[text] * source_.probability(static_cast<int64_t>(text) % source_.contexts(),
                                                                        static_cast<int32_t>(next));
    law_.swap(longer);
  }
  double entropy() const {
    long double sum = 0;
    for (const double p : law_) sum -= p > 0 ? p * std::log(static_cast<long double>(p)) : 0;
    return static_cast<double>(sum);
  }
  // Of the last `tokens` of a text.
  TextLaw last(int tokens) const {
    TextLaw ends = *this;
    ends.law_.assign(std::llround(std::pow(width_, tokens)), 0);
    for (size_t text = 0; text < law_.size(); ++text) ends.law_[text % ends.law_.size()] += law_[text];
    return ends;
  }
  const std::vector<double>& law() const { return law_; }

 private:
  const MarkovSource& source_;
  int64_t width_;
  std::vector<double> law_;
};

MarkovSettings random_settings(uint64_t number) {
  MarkovSettings s{.order = 1 + static_cast<int>(number % 3), .seed = number};
  s.alphabet = 2 + static_cast<int>(random_bits(number, 1, 0) % (s.order == 3 ? 6 : 15));
  s.concentration = 0.05 * std::exp(4 * random_uniform(number, 1, 1));
  return s;
}

TEST(MarkovSource, EntropiesAreThoseOfTextsCountedOneByOne) {
  for (uint64_t number = 0; number < 60; ++number) {
    const MarkovSource source(random_settings(number));
    TextLaw law(source);
    double before = law.entropy();
    for (int i = 0; i < 2; ++i) {  // what a longer text has more
      law.lengthen();
      ASSERT_NEAR(law.entropy() - before, *source.entropy_rate(), 1e-9) << number;
      before = law.entropy();
    }
    ASSERT_NEAR(law.last(2).entropy() - law.last(1).entropy(), *source.order_1_entropy(), 1e-9) << number;
    ASSERT_LE(*source.entropy_rate(), *source.order_1_entropy() + 1e-12);
    ASSERT_LE(*source.order_1_entropy(), std::log(source.vocabulary()));
    if (source.context() == 1) {
      ASSERT_NEAR(*source.entropy_rate(), *source.order_1_entropy(), 1e-12);
    }
  }
}

TEST(MarkovSource, RowsAreDistributionsAndTheStationaryOneStays) {
  for (uint64_t number = 0; number < 60; ++number) {
    const MarkovSource source(random_settings(number));
    TextLaw law(source);
    double sum = 0;
    for (int64_t context = 0; context < source.contexts(); ++context) {
      double row = 0;
      for (int32_t next = 0; next < source.vocabulary(); ++next) {
        ASSERT_GT(source.probability(context, next), 0);
        row += source.probability(context, next);
      }
      ASSERT_NEAR(row, 1, 1e-12);
      sum += source.stationary(context);
    }
    ASSERT_NEAR(sum, 1, 1e-12);
    law.lengthen();
    const std::vector<double> moved = law.last(source.context()).law();
    for (int64_t context = 0; context < source.contexts(); ++context)
      ASSERT_NEAR(moved[context], source.stationary(context), 1e-12) << number;
  }
}

TEST(MarkovSource, ByDefaultTwoTokensSayAFifthMoreThanOne) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const MarkovSource source({.seed = seed});
    EXPECT_GE(*source.order_1_entropy(), 1.2 * *source.entropy_rate()) << seed;
    EXPECT_GE(std::log(source.vocabulary()), 1.05 * *source.order_1_entropy()) << seed;
  }
}

// The mean entropy of a Dirichlet distribution's draws; what all tokens share adds a little.
TEST(MarkovSource, RowsAreAsSharpAsTheirConcentrationSays) {
  using boost::math::digamma;
  for (const double concentration : {0.05, 0.1, 0.3, 1.0, 4.0}) {
    double sum = 0;
    int64_t rows = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const MarkovSource source({.seed = seed, .concentration = concentration});
      for (int64_t context = 0; context < source.contexts(); ++context, ++rows)
        for (int32_t next = 0; next < 16; ++next)
          sum -= source.probability(context, next) * std::log(source.probability(context, next));
    }
    const double expected = digamma(16 * concentration + 1) - digamma(concentration + 1);
    EXPECT_NEAR(sum / static_cast<double>(rows), expected, 0.025) << concentration;
  }
}

// The mean over samples of what the true probabilities lose on them, with its standard error.
struct Estimate {
  double mean = 0, error = 0;
};
Estimate lost_on(const MarkovSource& source, Split split, int samples, size_t length) {
  double sum = 0, squares = 0;
  std::vector<int32_t> text(length);
  for (int sample = 0; sample < samples; ++sample) {
    source.fill(split, sample % 7, sample, text);
    int64_t context = 0;
    double lost = 0;
    for (size_t i = 0; i < length; ++i) {
      if (i >= static_cast<size_t>(source.context())) lost -= std::log(source.probability(context, text[i]));
      context = (context * source.vocabulary() + text[i]) % source.contexts();
    }
    lost /= static_cast<double>(length - source.context());
    sum += lost;
    squares += lost * lost;
  }
  const double mean = sum / samples;
  return {mean, std::sqrt((squares / samples - mean * mean) / (samples - 1))};
}

TEST(MarkovSource, WhatItWritesLosesTheEntropyRate) {
  for (uint64_t number = 0; number < 12; ++number) {
    const MarkovSource source(random_settings(number));
    for (const Split split : {Split::train, Split::held_out}) {
      const Estimate found = lost_on(source, split, 3000, 48);
      EXPECT_NEAR(found.mean, *source.entropy_rate(), 4 * found.error) << number;
    }
  }
}

// Counts of every text of three tokens, wherever in a sample it begins, against its probability.
TEST(MarkovSource, EveryPlaceOfASampleHasTheStationaryLaw) {
  const MarkovSource source({.order = 2, .alphabet = 4, .seed = 5});
  TextLaw law(source);
  law.lengthen();
  constexpr int kSamples = 40'000;
  std::vector<int32_t> text(11);
  for (const size_t place : {0, 1, 8}) {
    std::vector<double> counts(64);
    for (int sample = 0; sample < kSamples; ++sample) {
      source.fill(Split::train, 3, sample, text);
      ++counts[text[place] * 16 + text[place + 1] * 4 + text[place + 2]];
    }
    double chi2 = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const double expected = law.law()[i] * kSamples;
      chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    EXPECT_LT(chi2, 63 + 5 * std::sqrt(2 * 63.0)) << place;
  }
}

TEST(MarkovSource, ASampleIsOfItsSeedSplitStepAndNumberAlone) {
  const auto one = make_markov_source({.seed = 9}), same = make_markov_source({.seed = 9});
  std::map<std::vector<int32_t>, int> seen;
  std::vector<int32_t> text(40), again(40), beginning(17);
  for (int64_t step = 0; step < 30; ++step)
    for (int64_t sample = 29; sample >= 0; --sample)  // in another order than below
      for (const Split split : {Split::held_out, Split::train}) {
        one->fill(split, step, sample, text);
        ++seen[text];
        same->fill(split, step, sample, again);
        ASSERT_EQ(text, again);
        same->fill(split, step, sample, beginning);
        ASSERT_TRUE(std::ranges::equal(beginning, std::span(text).first(beginning.size())));
      }
  EXPECT_EQ(seen.size(), 30u * 30 * 2);
  same->fill(Split::train, 29, 0, again);
  EXPECT_EQ(text, again);
}

// Held-out samples say nothing of training ones of the same step and number: equal tokens are as many as by chance.
TEST(MarkovSource, SplitsStepsAndSamplesAreIndependent) {
  const MarkovSource source({.alphabet = 8, .seed = 3});
  std::vector<double> share(8);
  for (int64_t context = 0; context < source.contexts(); ++context) share[context % 8] += source.stationary(context);
  double chance = 0;
  for (const double p : share) chance += p * p;
  constexpr int kPairs = 20'000;
  std::array<double, 3> equal{};
  for (int n = 0; n < kPairs; ++n) {
    std::array<std::vector<int32_t>, 4> text;
    text.fill(std::vector<int32_t>(6));
    source.fill(Split::train, n, 5, text[0]);
    source.fill(Split::held_out, n, 5, text[1]);
    source.fill(Split::train, n, 6, text[2]);
    source.fill(Split::train, n + 1, 5, text[3]);
    for (size_t i = 0; i < equal.size(); ++i) equal[i] += text[0].back() == text[i + 1].back() ? 1.0 / kPairs : 0;
  }
  for (const double found : equal) EXPECT_NEAR(found, chance, 4 * std::sqrt(chance * (1 - chance) / kPairs));
}

TEST(MarkovSource, SettingsThatCannotBeAreNamed) {
  const auto names = [](const MarkovSettings& settings, const std::string& key) {
    const std::string text = error_of<BadInput>([&] { make_markov_source(settings); });
    EXPECT_TRUE(text.starts_with(key) && text.find("expected") != std::string::npos) << text;
  };
  names({.order = 0}, "order: found 0");
  names({.order = 8, .alphabet = 16}, "order: found 8");
  names({.alphabet = 1}, "alphabet: found 1");
  names({.alphabet = 257}, "alphabet: found 257");
  names({.concentration = 0}, "concentration: found 0");
}

}  // namespace
}  // namespace moe
