#include <array>
#include <gtest/gtest.h>

#include "moe/base/text.h"

namespace moe {
namespace {

TEST(Suggestion, IsTheNearestNameOfAFewEdits) {
  constexpr std::array<std::string_view, 5> kKnown{"fsmoe", "tutel", "tutel-improved", "lina", "parm-s1"};
  const auto suggested = [&](std::string_view name) { return suggestion(name, kKnown); };
  EXPECT_EQ(suggested("fsmo"), "; did you mean 'fsmoe'?");                  // one dropped
  EXPECT_EQ(suggested("tutlel"), "; did you mean 'tutel'?");                // one added
  EXPECT_EQ(suggested("parm-s2"), "; did you mean 'parm-s1'?");             // one changed
  EXPECT_EQ(suggested("lian"), "; did you mean 'lina'?");                   // two swapped
  EXPECT_EQ(suggested("tutel-impvd"), "; did you mean 'tutel-improved'?");  // three of eleven letters
  EXPECT_EQ(suggested("lain"), "");                                         // two of four
  EXPECT_EQ(suggested("gpipe"), "");
  EXPECT_EQ(suggested(""), "");
  EXPECT_EQ(suggestion("x", {}), "");
}

TEST(Suggestion, OfEquallyManyEditsNamesAll) {
  constexpr std::array<std::string_view, 3> kKnown{"testbed-a", "testbed-b", "testbed-a-printed"};
  EXPECT_EQ(suggestion("testbed-c", kKnown), "; did you mean 'testbed-a' or 'testbed-b'?");
  EXPECT_EQ(suggestion("testbed", kKnown), "; did you mean 'testbed-a' or 'testbed-b'?");
}

TEST(Suggestion, KnowsNamesByTheirStartsAndParts) {
  constexpr std::array<std::string_view, 11> kKnown{
      "mixtral-22b", "mixtral-7b", "h100-8",      "h100-deepep-1-node", "h100-deepep-2-nodes", "qwen3-30b-a3b",
      "gpt-oss-20b", "gpt2-xl",    "olmoe-1b-7b", "fsmoe-interleaved",  "fsmoe-no-partition"};
  const auto suggested = [&](std::string_view name) { return suggestion(name, kKnown); };
  EXPECT_EQ(suggested("mixtral"), "; did you mean 'mixtral-7b' or 'mixtral-22b'?");
  EXPECT_EQ(suggested("Mixtral"), "; did you mean 'mixtral-7b' or 'mixtral-22b'?");
  EXPECT_EQ(suggested("h100"), "; did you mean 'h100-8', 'h100-deepep-1-node' or 'h100-deepep-2-nodes'?");
  EXPECT_EQ(suggested("fsmoe-int"), "; did you mean 'fsmoe-interleaved'?");
  EXPECT_EQ(suggested("interleaved"), "; did you mean 'fsmoe-interleaved'?");  // a part
  EXPECT_EQ(suggested("leaved"), "; did you mean 'fsmoe-interleaved'?");       // inside a word
  EXPECT_EQ(suggested("qwen-30b"), "; did you mean 'qwen3-30b-a3b'?");         // starts of its words
  EXPECT_EQ(suggested("gptoss"), "; did you mean 'gpt-oss-20b'?");             // without what stands between
  EXPECT_EQ(suggested("mixtral-8x141b-instruct"), "; did you mean 'mixtral-7b' or 'mixtral-22b'?");  // the first word
  EXPECT_EQ(suggested("8"), "");                                                                     // in many
  EXPECT_EQ(suggested("-"), "");
}

TEST(Suggestion, KnowsAbbreviationsWithANumber) {
  constexpr std::array<std::string_view, 4> kTypes{"float64", "float32", "bfloat16", "float16"};
  EXPECT_EQ(suggestion("bf16", kTypes), "; did you mean 'bfloat16'?");
  EXPECT_EQ(suggestion("fp16", kTypes), "; did you mean 'float16'?");
  EXPECT_EQ(suggestion("f64", kTypes), "; did you mean 'float64'?");
  EXPECT_EQ(suggestion("fp8", kTypes), "");
  EXPECT_EQ(suggestion("16", kTypes), "");
}

TEST(Suggestion, KnowsFlags) {
  constexpr std::array<std::string_view, 4> kFlags{"--micro-batches", "--micro-op-bytes", "--cluster", "--batch"};
  EXPECT_EQ(suggestion("--micro", kFlags), "; did you mean '--micro-batches' or '--micro-op-bytes'?");
  EXPECT_EQ(suggestion("--batches", kFlags), "; did you mean '--batch'?");
  EXPECT_EQ(suggestion("--op-bytes", kFlags), "; did you mean '--micro-op-bytes'?");
}

}  // namespace
}  // namespace moe
