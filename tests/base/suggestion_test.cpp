#include "moe/base/suggestion.h"

#include <array>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace moe
