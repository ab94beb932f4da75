#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/exec/executor.h"
#include "tests/exec/lane_builder.h"

namespace moe {
namespace {

using Crossings = std::vector<std::vector<int>>;

TEST(CrossingsTest, OneLaneNeedsNone) {
  LaneBuilder lanes(1);
  const int a = lanes.add(0);
  const int b = lanes.add(0, {a});
  lanes.add(0, {a, b});
  EXPECT_EQ(cross_lane_waits(lanes.structure()), Crossings(3));
}

TEST(CrossingsTest, ADiamondNeedsItsThreeEdges) {
  LaneBuilder lanes(3);
  const int top = lanes.add(0);
  const int left = lanes.add(1, {top});
  const int right = lanes.add(2, {top});
  lanes.add(0, {top, left, right});
  EXPECT_EQ(cross_lane_waits(lanes.structure()), (Crossings{{}, {top}, {top}, {right, left}}));
}

TEST(CrossingsTest, WhatAnotherWaitImpliesIsLeftOut) {
  LaneBuilder lanes(3);
  const int a = lanes.add(0);
  const int b = lanes.add(0, {a});
  const int c = lanes.add(1, {b});
  lanes.add(1, {a});        // c waited for b, which follows a
  lanes.add(2, {a, b, c});  // c is enough
  lanes.add(2, {a, b});     // and stays so for the rest of the lane
  EXPECT_EQ(cross_lane_waits(lanes.structure()), (Crossings{{}, {}, {b}, {}, {c}, {}}));
}

/// before[a][b]: a is over when b starts, by the given edges and the lanes' order.
std::vector<std::vector<bool>> order_by(const Structure& structure, const Crossings& edges) {
  const size_t tasks = structure.tasks.size();
  std::vector<std::vector<bool>> before(tasks, std::vector<bool>(tasks, false));
  std::vector<int> last(structure.lanes.size(), -1);
  for (size_t id = 0; id < tasks; ++id) {
    std::vector<int> direct = edges[id];
    int& lane_last = last[structure.tasks[id].lane];
    if (lane_last >= 0) direct.push_back(lane_last);
    for (const int other : direct) {
      before[other][id] = true;
      for (size_t a = 0; a < tasks; ++a)
        if (before[a][other]) before[a][id] = true;
    }
    lane_last = static_cast<int>(id);
  }
  return before;
}

TEST(CrossingsTest, RandomStructuresKeepTheirOrderWithFewerWaits) {
  size_t waits = 0, dependencies = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const LaneBuilder lanes = random_structure(seed, 1 + static_cast<int>(seed % 5), 40);
    const auto structure = lanes.build();
    Crossings all;
    for (const Task& task : structure->tasks) all.push_back(task.after);
    const Crossings crossings = cross_lane_waits(*structure);
    EXPECT_EQ(order_by(*structure, crossings), order_by(*structure, all)) << "seed " << seed;
    for (size_t id = 0; id < all.size(); ++id) {
      waits += crossings[id].size();
      dependencies += all[id].size();
    }
  }
  EXPECT_LT(waits, dependencies / 2);
}

void expect_refused(const Structure& structure, const std::string& part) {
  try {
    cross_lane_waits(structure);
    ADD_FAILURE() << "accepted, expected an error with: " << part;
  } catch (const WrongResult& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(CrossingsTest, TasksOutOfIssueOrderAreNamed) {
  const auto broken = [](auto&& change) {
    LaneBuilder lanes(2);
    lanes.add(0);
    lanes.add(1, {0});
    lanes.add(0, {1});
    change(lanes.structure());
    return lanes.structure();
  };
  const std::string third = broken([](Structure&) {}).tasks[2].name();
  expect_refused(broken([](Structure& s) { s.tasks[2].after = {2}; }), third + " (task 2) waits for task 2");
  expect_refused(broken([](Structure& s) { s.tasks[2].after = {-1}; }), third);
  expect_refused(broken([](Structure& s) { s.lanes[0].queue = {2, 0}; }), "queued after task 2");
  expect_refused(broken([](Structure& s) { s.lanes[0].queue = {0}; }), third + " is on 0 lanes' queues");
  expect_refused(broken([](Structure& s) { s.lanes[1].queue = {1, 2}; }), third + " belongs to lane 0");
  expect_refused(broken([](Structure& s) { s.lanes[1].queue = {1, 7}; }), "task 7 of 3");
  expect_refused(broken([](Structure& s) { s.tasks[1].id = 0; }), "has id 0 at place 1");
}

}  // namespace
}  // namespace moe
