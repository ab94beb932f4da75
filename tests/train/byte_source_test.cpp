#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/train/token_source.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

std::string random_text(uint64_t seed, size_t size, int letters) {
  std::string text(size, ' ');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(random_bits(seed, 1, i) % letters);
  return text;
}

TEST(ByteSource, SamplesAreWindowsOfTheirSplit) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const size_t size = 20 + random_bits(seed, 2, 0) % 3000;
    const ByteSource source("f", random_text(seed, size, 256), seed);
    const auto train = source.part(Split::train), held_out = source.part(Split::held_out);
    ASSERT_EQ(train.data() + train.size(), held_out.data());
    ASSERT_EQ(train.size() + held_out.size(), size);
    ASSERT_EQ(held_out.size(), size / 10);
    for (const Split split : {Split::train, Split::held_out}) {
      const auto part = source.part(split);
      std::vector<int32_t> tokens(1 + random_bits(seed, 3, 0) % part.size()), again(tokens.size());
      for (int64_t sample = 0; sample < 50; ++sample) {
        source.fill(split, 3, sample, tokens);
        source.fill(split, 3, sample, again);
        ASSERT_EQ(tokens, again);
        const std::string window(tokens.begin(), tokens.end());
        ASSERT_NE(part.find(window), std::string_view::npos);
      }
      tokens.resize(part.size());
      source.fill(split, 1, 1, tokens);
      ASSERT_EQ(std::string(tokens.begin(), tokens.end()), part);
    }
  }
}

TEST(ByteSource, WindowsBeginEverywhereAlike) {
  std::string text(250, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i);
  const ByteSource source("f", text, 4);
  for (const Split split : {Split::train, Split::held_out}) {
    const auto places = static_cast<double>(source.part(split).size() - 4);
    std::map<int32_t, int> counts;
    std::array<int32_t, 5> window;
    constexpr int kSamples = 40'000;
    for (int64_t n = 0; n < kSamples; ++n) {
      source.fill(split, n / 100, n % 100, window);
      ++counts[window[0]];
    }
    ASSERT_EQ(counts.size(), places);
    for (const auto& [first, count] : counts) EXPECT_NEAR(count, kSamples / places, 6 * std::sqrt(kSamples / places));
  }
}

// The table of pairs anew, by its definition: a map of what was seen.
TEST(ByteSource, BigramLossIsThatOfPairsCounted) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const ByteSource source("f", random_text(seed, 400 + seed * 50, 2 + static_cast<int>(seed) * 10), seed);
    std::map<std::string, int> pairs;
    std::map<char, int> firsts;
    const std::string train(source.part(Split::train)), held_out(source.part(Split::held_out));
    for (size_t i = 0; i + 1 < train.size(); ++i) {
      ++pairs[train.substr(i, 2)];
      ++firsts[train[i]];
    }
    long double product = 0;
    for (size_t i = 0; i + 1 < held_out.size(); ++i)
      product += std::log((pairs[held_out.substr(i, 2)] + 1.0L) / (firsts[held_out[i]] + 256.0L));
    ASSERT_NEAR(source.bigram_held_out_loss(), static_cast<double>(-product / (held_out.size() - 1)), 1e-12);
  }
  EXPECT_NEAR(ByteSource("f", random_text(1, 400'000, 2), 1).bigram_held_out_loss(), std::log(2), 0.01);
}

TEST(ByteSource, ReadsTheTextThatComesWithIt) {
  const auto source = read_byte_source(included_text_path(), 1);
  EXPECT_GT(source->part(Split::train).size() + source->part(Split::held_out).size(), 1'000'000u);
  const double loss = source->bigram_held_out_loss();
  EXPECT_GT(loss, 1.5);
  EXPECT_LT(loss, 3);
  EXPECT_FALSE(source->entropy_rate().has_value());
}

TEST(ByteSource, WhatIsTooShortOrNoFileIsNamed) {
  const Scratch scratch;
  const std::string shorter = scratch.write("short.txt", "nineteen characters"), empty = scratch.write("empty", "");
  const auto fails = [](const std::string& path) { return error_of<BadInput>([&] { read_byte_source(path, 1); }); };
  EXPECT_EQ(fails(shorter), shorter + ": found 19 bytes, expected 20 at least");
  EXPECT_EQ(fails(empty), empty + ": found 0 bytes, expected 20 at least");
  for (const std::string& path : {scratch.path(""), scratch.path("none")})
    EXPECT_EQ(fails(path), path + ": found no readable file, expected a file of text");
  const auto source = read_byte_source(scratch.write("long.txt", std::string(100, 'a')), 1);
  std::vector<int32_t> tokens(11);
  source->fill(Split::train, 0, 0, tokens);
  const auto text = error_of<BadInput>([&] { source->fill(Split::held_out, 0, 0, tokens); });
  EXPECT_EQ(text, scratch.path("long.txt") + ": found 10 bytes held out, expected 11 at least, as long as a sample");
}

}  // namespace
}  // namespace moe
