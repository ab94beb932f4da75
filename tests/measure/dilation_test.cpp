// What decides how much slower than modelled an emulated cluster runs: robust figures, and named.
#include <gtest/gtest.h>

#include "moe/measure/layers/proxy.h"
#include "tests/exec/lane_builder.h"

namespace moe::measure {
namespace {

constexpr int kTasks = 6, kRunPasses = 7, kRanks = 2;
constexpr double kModelledS = 10e-3, kWorkS = 1e-3;

// Experts of 10 ms, one after the other.
PlannedRun experts(const std::string& schedule, size_t tasks = kTasks) {
  LaneBuilder builder(1);
  for (size_t i = 0; i < tasks; ++i) builder.add(0);
  PlannedRun run;
  run.plan.schedule = schedule;
  run.plan.structure = builder.build();
  run.task_seconds.assign(tasks, kModelledS);
  run.forward_s = static_cast<double>(tasks) * kModelledS;
  return run;
}

std::vector<RankTimes> passes(double work_s) {
  const std::vector<TaskTime> rank(kTasks, TaskTime{0, work_s});
  return std::vector<RankTimes>(kRunPasses, RankTimes(kRanks, rank));
}

TEST(Dilation, IsThatOfTheShortestPassWhereWorkIsShort) {
  const Dilation d = choose_dilation({experts("a")}, {passes(kWorkS)});
  EXPECT_DOUBLE_EQ(d.factor, 0.06 / (kTasks * kModelledS));
  EXPECT_EQ(d.set_by, "the shortest pass");
}

TEST(Dilation, GivesEveryTaskOfADeepPassItsShare) {
  EXPECT_DOUBLE_EQ(min_dilation({experts("a", 600)}).factor, 0.8e-3 / kModelledS);
}

TEST(Dilation, IsThatOfTheShortestTasksWhereTheyAreMany) {
  PlannedRun run = experts("a", 80);
  for (size_t i = 0; i < 40; ++i) run.task_seconds[2 * i] = 1e-6;
  run.forward_s = 0.4;
  const Dilation d = min_dilation({experts("b"), run});
  EXPECT_DOUBLE_EQ(d.factor, 40 * 0.1e-3 / (1e-3 * run.forward_s));  // waking of 40 tasks is a thousandth of the pass
  EXPECT_EQ(d.set_by, "the shortest tasks, up to forward expert of a");
  for (double& seconds : run.task_seconds) seconds = std::max(seconds, 50e-6);
  EXPECT_DOUBLE_EQ(min_dilation({run}).factor, 2) << "all are long enough";
}

// Its waking is nothing beside the pass, however short it is.
TEST(Dilation, OneVeryShortTaskDoesNotDecide) {
  PlannedRun run = experts("a");
  for (const double seconds : {1e-6, 1e-9}) {
    run.task_seconds[3] = seconds;
    EXPECT_DOUBLE_EQ(min_dilation({run}).factor, 0.1e-3 / (1e-3 * run.forward_s));
  }
}

TEST(Dilation, LeavesFourTimesTheWorkWhereThatIsMoreAndNamesIt) {
  const Dilation d = choose_dilation({experts("a"), experts("b")}, {passes(kWorkS), passes(2 * kModelledS)});
  EXPECT_DOUBLE_EQ(d.factor, 8);
  EXPECT_EQ(d.set_by, "the work of forward expert of b");
}

// What an interrupt does: one task of one pass, a whole pass, or one task of each pass.
TEST(Dilation, NoOutlierDecides) {
  const double ordinary = choose_dilation({experts("a")}, {passes(kWorkS)}).factor;
  for (int interrupted = 0; interrupted < 3; ++interrupted) {
    auto times = passes(kWorkS);
    for (size_t pass = 0; pass < times.size(); ++pass)
      for (size_t task = 0; task < kTasks; ++task)
        if ((interrupted != 2 && pass == 0 && (interrupted == 1 || task == 4)) || (interrupted == 2 && task == 4))
          times[pass][1][task].end_s = 100 * kModelledS;
    EXPECT_DOUBLE_EQ(choose_dilation({experts("a")}, {times}).factor, ordinary) << interrupted;
  }
}

// A step's end: one task behind hundreds, whose work is far above its pace.
TEST(Dilation, ARareTaskDecidesOnlyWhereItsWorkIsMuchOfAPass) {
  constexpr size_t kDeep = 600;
  for (const bool much : {false, true}) {
    PlannedRun run = experts("a", kDeep);
    LaneBuilder builder(1);
    for (size_t i = 0; i < kDeep; ++i) builder.add(0);
    builder.structure().tasks.back().kind = TaskKind::optimizer;
    run.plan.structure = builder.build();
    const double work_s = much ? 1.0 : 1e-3;
    run.task_seconds.back() = 1e-3;
    std::vector<TaskTime> rank(kDeep, TaskTime{0, kWorkS});
    rank.back().end_s = work_s;
    const Dilation d = choose_dilation({run}, {std::vector<RankTimes>(kRunPasses, RankTimes(kRanks, rank))});
    EXPECT_DOUBLE_EQ(d.factor, much ? work_s / (1e-3 * run.forward_s) : 4 * kWorkS / kModelledS) << much;
    EXPECT_EQ(d.set_by == "the work of forward optimizer of a", much) << d.set_by;
  }
}

}  // namespace
}  // namespace moe::measure
