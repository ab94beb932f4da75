// Rows of a layer's tasks: what is fitted, what it says of itself, and files that hold them.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "moe/base/random.h"
#include "moe/prices/fit.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  double uniform() { return random_uniform(seed_, random_stream_id("terms"), drawn_++); }
  double log_uniform(double least, double most) { return least * std::pow(most / least, uniform()); }
  bool one_in(uint64_t n) { return random_bits(seed_, random_stream_id("chances"), drawn_++) % n == 0; }

 private:
  uint64_t seed_, drawn_ = 0;
};

TermValues random_terms(Draw& draw) {
  return {1,
          draw.log_uniform(1e6, 1e11),
          draw.log_uniform(1e3, 1e8),
          draw.log_uniform(1e4, 1e9),
          draw.log_uniform(1e4, 1e9),
          draw.log_uniform(1e4, 1e9)};
}

// Some of them 0: a module that does not grow with such a term.
TermValues random_row(Draw& draw) {
  const TermValues typical{2e-5, 2e-11, 1e-9, 1e-10, 1e-10, 1e-10};
  TermValues row{};
  for (size_t t = 0; t < kTerms; ++t) row[t] = draw.one_in(3) ? 0 : typical[t] * draw.log_uniform(0.1, 10);
  if (std::ranges::max(row) == 0) row[1] = typical[1];
  return row;
}

TEST(FitTerms, FindTheRowThatMadeTheTimes) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Draw draw(seed);
    const TermValues truth = random_row(draw);
    std::vector<TermSample> samples;
    for (int i = 0; i < 40; ++i) {
      const TermValues terms = random_terms(draw);
      samples.push_back({terms, dot(truth, terms)});
    }
    TaskRow row;
    fit_terms(samples, "a row", row);
    for (const TermSample& sample : samples)
      ASSERT_NEAR(dot(row.seconds_per_term, sample.terms) / sample.seconds, 1, 1e-6) << seed;
    EXPECT_LT(row.held_out_error.value(), 1e-6) << seed;
    EXPECT_EQ(row.verdict.weak, std::nullopt) << seed;
    for (size_t t = 0; t < kTerms; ++t) EXPECT_GE(row.seconds_per_term[t], 0) << seed;
  }
}

TEST(FitTerms, AFewOddSamplesDecideNothing) {
  std::vector<double> errors;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Draw draw(seed);
    const TermValues truth = random_row(draw);
    std::vector<TermSample> samples;
    for (int i = 0; i < 60; ++i) {
      const TermValues terms = random_terms(draw);
      const double noise = i % 10 == 0 ? 5 + 20 * draw.uniform() : 1 + 0.04 * (draw.uniform() - 0.5);
      samples.push_back({terms, noise * dot(truth, terms)});
    }
    TaskRow row;
    fit_terms(samples, "a row", row);
    for (int i = 0; i < 20; ++i) {
      const TermValues terms = random_terms(draw);
      errors.push_back(std::abs(dot(row.seconds_per_term, terms) / dot(truth, terms) - 1));
    }
  }
  std::ranges::sort(errors);
  EXPECT_LT(errors[errors.size() / 2], 0.05);
  EXPECT_LT(errors[errors.size() * 95 / 100], 0.3);
}

TEST(FitTerms, ShortTasksWeighAsLongOnesDo) {
  std::vector<TermSample> samples;
  for (double flop = 1e6; flop < 1e12; flop *= 2) samples.push_back({{1, flop}, 1e-5 + flop * 1e-11});
  for (TermSample& sample : samples) sample.seconds *= sample.terms[1] > 1e10 ? 1.05 : 1;  // long ones a bit off
  TaskRow row;
  fit_terms(samples, "a row", row);
  EXPECT_NEAR(row.seconds_per_term[0], 1e-5, 0.1e-5);  // absolute errors would put it at 0 or far above
}

TEST(FitTerms, SayHowTheyDid) {
  TaskRow row;
  fit_terms({{{1, 2e6}, 1e-3}, {{1, 4e6}, 2e-3}}, "a row", row);
  EXPECT_EQ(row.verdict.weak, "2 samples, too few to judge it");
  EXPECT_FALSE(row.held_out_error);
  EXPECT_EQ(row.min, (TermValues{1, 2e6}));
  EXPECT_EQ(row.max, (TermValues{1, 4e6}));
  fit_terms({{{1, 1e6}, 1e-3}, {{1, 2e6}, 9e-3}, {{1, 3e6}, 2e-3}, {{1, 4e6}, 8e-3}}, "a row", row);
  EXPECT_TRUE(row.verdict.weak.value().starts_with("held-out error"));
  EXPECT_THROW(fit_terms({}, "a row", row), BadInput);
  EXPECT_THROW(fit_terms({{{1}, 0}}, "a row", row), BadInput);
  EXPECT_THROW(fit_terms({{{1}, std::nan("")}}, "a row", row), BadInput);
}

TEST(FitTerms, ProfilesOfThemThatAreWrongAreRefusedByLine) {
  const std::string head =
      "schema = 1\nname = \"p\"\nsource = \"s\"\n[topology]\nnodes = 1\nranks_per_node = 2\n[[task]]\n";
  const std::string good =
      "name = \"copy\"\nphase = \"forward\"\ndtype = \"float32\"\ns_per_call = 1e-6\nrange_call = [1, 1]\n";
  const Scratch scratch;
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string text = head + good;
    text.replace(text.find(from, head.size()), from.size(), to);
    try {
      read_profile(scratch.write("p.toml", text));
    } catch (const BadInput& found) {
      return std::string(found.what()).substr(scratch.path("p.toml").size());
    }
    return std::string();
  };
  EXPECT_EQ(error("copy", "copy"), "");
  EXPECT_EQ(error("s_per_call = 1e-6", "s_per_call = -1"),
            ":11: task.s_per_call: found -1, expected a number >= 0 and <= 1000000000000");
  EXPECT_EQ(error("[1, 1]", "[2, 1]"), ":12: task.range_call: found 1, expected a number >= 2");
  EXPECT_EQ(error("[1, 1]", "[1]"), ":12: task.range_call: found a list of 1, expected [least, most]");
  EXPECT_EQ(error("range_call = [1, 1]\n", ""), ":11: task.range_call: found 1e-06, expected [least, most] beside it");
  EXPECT_EQ(error("forward", "sideways"), ":9: task.phase: found 'sideways', expected one of: forward, backward, step");
  EXPECT_NE(error("float32", "int8").find(":10: task.dtype: unknown 'int8'"), std::string::npos);
  EXPECT_NE(error("s_per_call", "s_per_cow").find(":11: task.s_per_cow: found unknown key"), std::string::npos);
  EXPECT_EQ(error(good, good + "[[task]]\n" + good),
            ":14: task.name: found a second row of the same kind, expected each row once");
}

}  // namespace
}  // namespace moe
