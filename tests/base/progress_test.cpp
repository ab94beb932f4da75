#include <gtest/gtest.h>

#include "moe/base/terminal.h"

namespace moe {
namespace {

TEST(MeasuredWork, KnowsNothingBeforeSomeIsDone) {
  MeasuredWork work;
  EXPECT_FALSE(work.remaining_s());
  work.open("gemm") = 4;
  EXPECT_FALSE(work.remaining_s());
  EXPECT_EQ(work.share(), 0);
}

// Sizes weigh: the large half of the work is open although one of two is done.
TEST(MeasuredWork, WeighsByAmount) {
  MeasuredWork work;
  work.open("gemm") = 1 + 3;
  work.record_done("gemm", 1, 0.5);
  EXPECT_DOUBLE_EQ(work.remaining_s().value(), 1.5);
  EXPECT_DOUBLE_EQ(work.share(), 0.25);
}

TEST(MeasuredWork, TakesWhatHasNotBegunAsAllSoFar) {
  MeasuredWork work;
  work.open("tasks") = 2;
  work.open("gemm") = 10;
  work.open("alltoall") = 6;
  work.record_done("tasks", 2, 8);  // four times what was guessed
  EXPECT_DOUBLE_EQ(work.remaining_s().value(), 4 * (10 + 6));
  work.record_done("gemm", 5, 5);  // a kind that has begun goes as it did; the other one as 13 s for 7
  EXPECT_DOUBLE_EQ(work.remaining_s().value(), 5 * 1 + 6 * 13.0 / 7);
  EXPECT_DOUBLE_EQ(work.share(), 13 / (13 + work.remaining_s().value()));
  work.record_done("gemm", 7, 5);  // more than was said
  work.record_done("alltoall", 6, 1);
  EXPECT_DOUBLE_EQ(work.remaining_s().value(), 0);
  EXPECT_DOUBLE_EQ(work.share(), 1);
}

// A library that the first product loads takes eight seconds; the second one takes none of it.
TEST(MeasuredWork, DoesNotTakeAKindsFirstPieceForAll) {
  MeasuredWork work;
  work.open("collectives") = 50;
  work.open("gemm") = 10;
  work.record_done("collectives", 50, 50);
  work.record_done("gemm", 0.1, 8);
  EXPECT_NEAR(work.remaining_s().value(), 9.9 * (0.05 * 80 + 0.95 * 58 / 50.1), 1e-9);  // not 9.9 * 80
  work.record_done("gemm", 1.9, 2);
  EXPECT_DOUBLE_EQ(work.remaining_s().value(), 8 * 10.0 / 2);
}

TEST(MeasuredWork, CanGrow) {
  MeasuredWork work;
  work.open("gemm") = 1;
  work.record_done("gemm", 1, 2);
  work.open("gemm") += 3;  // measured again
  EXPECT_DOUBLE_EQ(work.remaining_s().value(), 6);
}

TEST(Progress, SaysNoTimeLeftBeforeAnythingIsKnown) {
  EXPECT_EQ(Progress::state(0, 3, {}), "  0 %");
  EXPECT_EQ(Progress::state(0.01, 30, {}), "  1 %");  // what was set up once is most of it
  EXPECT_EQ(Progress::state(0.04, 3, {}), "  4 %, about 72 s left");
  EXPECT_EQ(Progress::state(0.25, 30, {}), " 25 %, about 90 s left");
}

TEST(Progress, TakesWhatWasExpectedUntilTheWorkTells) {
  EXPECT_EQ(Progress::state(0, 3, 60), "  0 %, about 57 s left");
  EXPECT_EQ(Progress::state(0.01, 61, 60), "  1 %, about 0 s left");
  EXPECT_EQ(Progress::state(0.5, 20, 60), " 50 %, about 20 s left");
}

}  // namespace
}  // namespace moe
