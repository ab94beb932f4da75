#include <algorithm>
#include <functional>
#include <gtest/gtest.h>

#include "tuner/answer/shape_search.h"

namespace moe::tuner {
namespace {

// Testbed A has no AlltoAll inside a node and no AllGather between nodes. A shape counts once for each reason, whatever
// schedules say it.
TEST(ShapeText, CountsWhyShapesAreRefused) {
  Profile profile = find_profile("testbed-a");
  const ChosenModel chosen = chosen_model({}, {}, profile);
  const ParallelShape& p = chosen.model.shape.parallel;
  const FoundShapes found =
      find_shapes({.chosen = chosen,
                   .global_batch = chosen.model.shape.layer.batch * p.dp,
                   .profile = profile,
                   .schedules = {&find_schedule("tutel"), &find_schedule("fsmoe"), &find_schedule("ds-moe")}});
  ASSERT_GE(found.refusals.size(), 2u);
  EXPECT_GT(found.unpriced, found.shapes / 10);
  EXPECT_EQ(found.unpriced, found.refused);
  EXPECT_TRUE(std::ranges::is_sorted(found.refusals, std::greater<>(), &std::pair<std::string, int>::second));
  int counted = 0;
  for (const auto& [reason, shapes] : found.refusals) {
    EXPECT_NE(reason.find("row for any number of ranks on the "), std::string::npos) << reason;
    EXPECT_LE(shapes, found.refused);
    counted += shapes;
  }
  EXPECT_GE(counted, found.refused) << "each shape has a reason";
  const std::string text = text_of(found, 3);
  const std::string first =
      fmt::format("SHAPE  {} of {} shapes have no price on this profile\n", found.unpriced, found.shapes);
  EXPECT_TRUE(text.starts_with(first)) << text;
  EXPECT_EQ(text.find("profile testbed-a"), std::string::npos) << "the answer names it above";
  EXPECT_EQ(json_of(found)["refusals"].size(), found.refusals.size());
}

}  // namespace
}  // namespace moe::tuner
