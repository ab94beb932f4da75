// Which tokens are masked, and by what: the shares of BERT's paper, the same on every rank.
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <vector>

#include "moe/train/token_source.h"

namespace moe {
namespace {

constexpr int64_t kSeq = 40, kVocabulary = 33;  // the last one is the mask

struct Masked {
  std::vector<int32_t> text = std::vector<int32_t>(kSeq), tokens = text, targets = text;
};

Masked masked(const MaskSeed& seed, int64_t sample) {
  Masked m;
  for (size_t i = 0; i < m.text.size(); ++i) m.text[i] = static_cast<int32_t>((i * 7 + sample) % (kVocabulary - 1));
  m.tokens = m.text;
  mask_tokens(seed, sample, kVocabulary, m.tokens, m.targets);
  return m;
}

TEST(MaskedTokens, AreFifteenOfAHundredOfEachSample) {
  EXPECT_EQ(masked_places(40), 6);
  EXPECT_EQ(masked_places(512), 77);
  EXPECT_EQ(masked_places(3), 1) << "one at least";
  for (int64_t sample = 0; sample < 50; ++sample) {
    const Masked m = masked({}, sample);
    EXPECT_EQ(std::count_if(m.targets.begin(), m.targets.end(), [](int32_t t) { return t >= 0; }), 6);
    for (size_t i = 0; i < m.text.size(); ++i) {
      EXPECT_TRUE(m.targets[i] == kNoTarget || m.targets[i] == m.text[i]);
      if (m.targets[i] == kNoTarget) {
        EXPECT_EQ(m.tokens[i], m.text[i]) << "a token that is not to be predicted stays";
      }
    }
  }
}

// Of n draws a share p lies within 5 sqrt(p (1 - p) / n) of p but for one in a million.
void expect_share(int64_t found, int64_t of, double p, const char* what) {
  const double n = static_cast<double>(of), share = static_cast<double>(found) / n;
  EXPECT_NEAR(share, p, 5 * std::sqrt(p * (1 - p) / n)) << what;
}

TEST(MaskedTokens, AreTheMaskAnyTokenOrThemselves) {
  int64_t all = 0, masks = 0, stayed = 0, samples = 4000;
  std::map<int32_t, int64_t> others;
  std::vector<int64_t> places(kSeq);
  for (int64_t sample = 0; sample < samples; ++sample) {
    const Masked m = masked({.seed = 3, .step = 2}, sample);
    for (size_t i = 0; i < m.text.size(); ++i) {
      if (m.targets[i] == kNoTarget) continue;
      ++all;
      ++places[i];
      masks += m.tokens[i] == kVocabulary - 1;
      stayed += m.tokens[i] == m.text[i];
      if (m.tokens[i] != kVocabulary - 1 && m.tokens[i] != m.text[i]) ++others[m.tokens[i]];
    }
  }
  expect_share(masks, all, 0.8, "the mask");
  const double same = 0.1 / (kVocabulary - 1);  // a token at random may be the one that was there
  expect_share(stayed, all, 0.1 + same, "stay");
  EXPECT_EQ(others.size(), static_cast<size_t>(kVocabulary - 1)) << "any token";
  for (const auto& [token, count] : others) expect_share(count, all, same * 31 / 32, "one token");
  for (const int64_t count : places) expect_share(count, samples, 0.15, "one place");
}

TEST(MaskedTokens, DependOnSeedSplitStepAndSampleAlone) {
  const MaskSeed seed{.seed = 5, .step = 7};
  EXPECT_EQ(masked(seed, 11).tokens, masked(seed, 11).tokens);
  std::set<std::vector<int32_t>> different;
  for (const MaskSeed& s : {seed, MaskSeed{6, false, 7}, {5, true, 7}, {5, false, 8}}) {
    Masked m = masked(s, 11);
    different.insert(m.targets);
  }
  Masked other = masked(seed, 12 + kVocabulary * 1000);
  for (int32_t& target : other.targets) target = target == kNoTarget ? target : 0;
  different.insert(other.targets);
  EXPECT_EQ(different.size(), 5U);
}

}  // namespace
}  // namespace moe
