#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <sstream>

#include "tuner/answer/shape_search.h"

namespace moe::tuner {
namespace {

// Testbed A has no AlltoAll inside a node, and here no AllGather there either. A shape counts once for each reason,
// whatever schedules say it.
TEST(ShapeText, CountsWhyShapesAreRefused) {
  Profile profile = find_profile("testbed-a");
  std::erase_if(profile.comm, [](const CommRow& row) { return row.op == Op::allgather; });
  const commands::ChosenModel chosen = commands::chosen_model({}, {}, profile);
  const ParallelShape& p = chosen.model.shape.parallel;
  const FoundShapes found =
      find_shapes({.chosen = chosen,
                   .global_batch = chosen.model.shape.layer.batch * p.dp,
                   .profile = profile,
                   .schedules = {&find_schedule("tutel"), &find_schedule("fsmoe"), &find_schedule("ds-moe")}});
  ASSERT_GE(found.refusals.size(), 2u);
  EXPECT_GT(found.unpriced, found.shapes / 10);
  EXPECT_EQ(found.unpriced, found.refused);
  EXPECT_TRUE(std::ranges::is_sorted(found.refusals, std::greater<>(), &std::pair<Refusal, int>::second));
  int counted = 0;
  for (const auto& [refusal, shapes] : found.refusals) {
    const std::string& reason = refusal.reason;
    EXPECT_EQ(refusal.kind, Refusal::Kind::unpriced);
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

// Groups stand above what they do with samples and states where both would be too wide beside each other.
TEST(ShapeText, KeepsItsWidth) {
  const Profile profile = find_profile("testbed-b");
  const commands::ChosenModel chosen = commands::chosen_model({}, {}, profile);
  RankedShape shape{.model = chosen.model, .best = rank({chosen, profile, {}, {}}, {&find_schedule("tutel")}).front()};
  shape.best.head_s = 1;
  FoundShapes found{.global_batch = 1024, .ranked = {shape}, .shapes = 2, .not_reached = 1};
  found.at_least_s = shape.total_s();
  EXPECT_NE(text_of(found, 3).find("  DP 8 MP 4 EP 8 ESP 4 esp-inside, 1 of 4  "), std::string::npos)
      << text_of(found, 3);
  EXPECT_NE(text_of(found, 3).find("1 not reached in time: slower, some with less memory\n"), std::string::npos);
  ParallelShape& p = found.ranked.front().model.shape.parallel;
  p.dp = 128;
  p.mp = 8;
  p.ep = 256;
  p.esp = 4;
  p.pp = 16;
  p.zero = 1;
  p.recompute = Recompute::selective;
  found.ranked.front().model.micro_batches = 128;
  found.at_least_s /= 2;
  const std::string text = text_of(found, 3);
  EXPECT_NE(text.find("\n  DP 128 MP 8 EP 256 ESP 4 PP 16 esp-inside  tutel "), std::string::npos) << text;
  EXPECT_NE(text.find("\n    128 of 4 gpipe, ZeRO 1, recompute\n"), std::string::npos) << text;
  EXPECT_NE(text.find("1 not reached in time\n"), std::string::npos) << text;
  p.recompute = Recompute::full;
  EXPECT_NE(text_of(found, 3).find("\n    128 of 4 gpipe, ZeRO 1, recompute full\n"), std::string::npos);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

}  // namespace
}  // namespace moe::tuner
