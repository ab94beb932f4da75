// Each test breaks one rule of a good plan (ids, order, lanes) and sees the error that names the task.
#include <algorithm>
#include <gtest/gtest.h>

#include "tests/plan/broken_plan.h"

namespace moe {
namespace {

using namespace broken_plan;

TEST(PlanChecks, AcceptTheGoodPlan) {
  EXPECT_NO_THROW(check_plan(good_plan()));
  EXPECT_NO_THROW(check_plan(changed(good_plan(), [](Structure&) {})));
}

TEST(PlanChecks, Cycle) {
  expect_broken_at(
      kForward, TaskKind::dispatch, 0,
      [](Structure& s, Task& task) { task.after.push_back(task_of(s, kForward, TaskKind::expert).id); },
      "dependencies form a cycle");
  expect_broken_at(
      kBackward, TaskKind::combine, 1, [](Structure&, Task& task) { task.after.push_back(task.id); },
      "dependencies form a cycle");
}

TEST(PlanChecks, LaneOrdersThatDeadlock) {
  // Acyclic by itself: the combine waits through expert and collectives for the dispatch queued behind it.
  const Plan bad = changed(good_plan(), [](Structure& s) {
    auto& queue = s.lanes[1].queue;
    const int dispatch = task_of(s, kForward, TaskKind::dispatch, 1).id;
    const int combine = task_of(s, kForward, TaskKind::combine, 1).id;
    std::iter_swap(std::ranges::find(queue, dispatch), std::ranges::find(queue, combine));
  });
  Structure s = *bad.structure;
  expect_named(bad, task_of(s, kForward, TaskKind::dispatch, 1).name(), "the lanes' orders deadlock");
}

TEST(PlanChecks, LanesOfTwoStagesThatDeadlockTogether) {
  // Each stage's own lanes are fine; only both together wait in a circle.
  Plan plan = good_plan();
  plan = changed(plan, [](Structure& s) {
    s.lanes.push_back({LaneKind::inter, 1, true, false, {}});
    s.lanes.push_back({LaneKind::intra, 1, false, true, {}});
    auto& inter = s.lanes[1].queue;
    // Move one dispatch to the other stage's lane behind a combine that waits for it over the first stage's lanes.
    Task& dispatch = task_of(s, kForward, TaskKind::dispatch, 1);
    Task& combine = task_of(s, kForward, TaskKind::combine, 1);
    for (Task* task : {&combine, &dispatch}) {
      std::erase(inter, task->id);
      task->lane = 3;
      s.lanes[3].queue.push_back(task->id);
    }
  });
  Structure s = *plan.structure;
  expect_named(plan, task_of(s, kForward, TaskKind::dispatch, 1).name(), "the lanes' orders deadlock");
}

TEST(PlanChecks, IssueOrderAgainstTheLanes) {
  // No deadlock, but an issuing thread that walks the ids would enqueue in another order than the lane's.
  const Plan bad = changed(good_plan(), [](Structure& s) {
    auto& queue = s.lanes[1].queue;
    std::iter_swap(std::ranges::find(queue, task_of(s, kForward, TaskKind::dispatch, 0).id),
                   std::ranges::find(queue, task_of(s, kForward, TaskKind::dispatch, 1).id));
  });
  Structure s = *bad.structure;
  expect_named(bad, task_of(s, kForward, TaskKind::dispatch, 0).name(), "is issued before");
}

TEST(PlanChecks, CollectiveOnALaneThatDoesNotOwnItsNetwork) {
  const auto to_lane = [](int lane) { return [lane](Structure& s, Task& task) { move_to_lane(s, task, lane); }; };
  expect_broken_at(kForward, TaskKind::dispatch, 0, to_lane(2),
                   "its ep group uses the inter network, which lane intra does not own");
  expect_broken_at(kBackward, TaskKind::allgather, 1, to_lane(1),
                   "its esp group uses the intra network, which lane inter does not own");
  expect_broken_at(kForward, TaskKind::combine, 0, to_lane(0), "which lane compute does not own");
  expect_broken_at(kForward, TaskKind::expert, 1, to_lane(1), "computes on the inter lane");
  expect_broken_at(kBackward, TaskKind::gate, 0, to_lane(2), "computes on the intra lane");
}

TEST(PlanChecks, CollectiveOverOneRank) {
  Plan plan = good_plan();
  plan.groups[GroupKind::esp] = {GroupKind::esp, 1, Network::none};
  Structure s = *plan.structure;
  expect_named(plan, task_of(s, kForward, TaskKind::allgather, 0).name(), "is a collective over one rank");
}

TEST(PlanChecks, CollectiveThatPretendsToCompute) {
  expect_broken_at(
      kForward, TaskKind::dispatch, 1, [](Structure&, Task& task) { task.group = GroupKind::none; },
      "runs over group none, its work over ep");
  expect_broken_at(
      kForward, TaskKind::allgather, 0, [](Structure&, Task& task) { task.group = GroupKind::mp; },
      "runs over group mp, its work over esp");
}

TEST(PlanChecks, TwoLanesThatOwnOneNetwork) {
  const Plan bad = changed(good_plan(), [](Structure& s) { s.lanes[2].owns_inter = true; });
  const std::string text = complaint(bad);
  EXPECT_NE(text.find("lanes inter and intra of stage 0 both own the inter network"), std::string::npos) << text;
  EXPECT_NE(text.find(bad.tasks()[bad.structure->lanes[2].queue[0]].name()), std::string::npos) << text;
  const Plan other_stage = changed(good_plan(), [](Structure& s) {
    s.lanes.push_back({LaneKind::inter, 1, true, true, {}});
  });
  EXPECT_EQ(complaint(other_stage), "no complaint") << "each stage has its own lanes";
}

TEST(PlanChecks, TaskQueuedTwiceOrNeverOrElsewhere) {
  expect_broken_at(
      kForward, TaskKind::expert, 1, [](Structure& s, Task& task) { std::erase(s.lanes[0].queue, task.id); },
      "is queued 0 times, expected once");
  expect_broken_at(
      kForward, TaskKind::expert, 1, [](Structure& s, Task& task) { s.lanes[1].queue.push_back(task.id); },
      "is queued 2 times, expected once");
  expect_broken_at(
      kForward, TaskKind::dispatch, 1,
      [](Structure& s, Task& task) {
        std::erase(s.lanes[1].queue, task.id);
        s.lanes[2].queue.insert(std::ranges::upper_bound(s.lanes[2].queue, task.id), task.id);
      },
      "is not in the queue of its lane inter");
}

TEST(PlanChecks, WrongIds) {
  const Plan stranger = changed(good_plan(), [](Structure& s) { s.lanes[0].queue.push_back(99); });
  EXPECT_NE(complaint(stranger).find("queues task 99, which does not exist"), std::string::npos);
  const Plan negative = changed(good_plan(), [](Structure& s) { s.lanes[0].queue.push_back(-1); });
  EXPECT_NE(complaint(negative).find("queues task -1, which does not exist"), std::string::npos);
  expect_broken_at(
      kForward, TaskKind::gate, 0, [](Structure&, Task& task) { task.id = 0; }, "is at index");
  for (const int lane : {-1, 3})
    expect_broken_at(
        kForward, TaskKind::gate, 0, [lane](Structure&, Task& task) { task.lane = lane; }, "does not exist");
  for (const int id : {-1, 99})
    expect_broken_at(
        kForward, TaskKind::gate, 0, [id](Structure&, Task& task) { task.after.push_back(id); }, "waits for task");
}

TEST(PlanChecks, WorkOfEachTask) {
  Plan plan = good_plan();
  plan.works.pop_back();
  EXPECT_NE(complaint(plan).find("works by task"), std::string::npos);
}

}  // namespace
}  // namespace moe
