// Each test breaks one rule of a good plan (gradients, rows, reads and writes) and sees the error that names the task.
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>

#include "tests/plan/broken_plan.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using namespace broken_plan;

// The two gradient tasks of the good plan: in the MoE part and beside the dense part.
std::array<std::string, 2> gradient_names(const Plan& plan) {
  std::array<std::string, 2> names;
  for (const Task& task : plan.tasks())
    if (task.kind == TaskKind::gradient) names.at(task.slice) = task.name();
  return names;
}

std::vector<int> gradient_ids(const Structure& s) {
  std::vector<int> ids;
  for (const Task& task : s.tasks)
    if (task.kind == TaskKind::gradient) ids.push_back(task.id);
  return ids;
}

TEST(PlanChecks, GradientSliceSentTwice) {
  std::string second;
  const Plan bad = changed(good_plan(), [&](Structure& s) {
    Task& task = s.tasks[gradient_ids(s).at(1)];
    task.slice = 0;
    second = task.name();
  });
  expect_named(bad, second, "sends slice 0 a second time");
}

TEST(PlanChecks, GradientBytesMissingOrTwice) {
  const auto names = gradient_names(good_plan());
  Plan plan = good_plan();
  plan.slices[1].begin += 4;
  expect_named(plan, names[1], "sends gradient bytes 1004 to 8192, expected them from 1000 on");
  plan = good_plan();
  plan.slices[1].begin -= 4;
  expect_named(plan, names[1], "sends gradient bytes 996 to 8192, expected them from 1000 on");
  plan = good_plan();
  plan.slices[0].begin = 4;
  expect_named(plan, names[0], "sends gradient bytes 4 to 1000, expected them from 0 on");
  plan = good_plan();
  plan.slices[1].end -= 4;
  expect_named(plan, names[1], "8188 of 8192 gradient bytes of layer 1 are sent");
  plan = good_plan();
  plan.slices[1].end += 4;
  expect_named(plan, names[1], "8196 of 8192 gradient bytes of layer 1 are sent");
  plan = good_plan();
  std::swap(plan.slices[1].begin, plan.slices[1].end);
  EXPECT_NE(complaint(plan), "no complaint");
}

TEST(PlanChecks, GradientNeverSent) {
  const Plan half = changed(good_plan(), [](Structure& s) { drop(s, gradient_ids(s).at(1)); });
  expect_named(half, gradient_names(half)[0], "1000 of 8192 gradient bytes of layer 1 are sent");
  Plan none = changed(half, [](Structure& s) { drop(s, gradient_ids(s).at(0)); });
  EXPECT_EQ(complaint(none), "plan: 0 of 8192 gradient bytes of layer 1 are sent");
  const int maker = none.tasks().back().id;
  none.gradients[0].made_by = maker;
  expect_named(none, none.tasks().back().name(), "0 of 8192 gradient bytes");
}

TEST(PlanChecks, GradientBeforeItsMaker) {
  Plan plan = good_plan();
  Structure s = *plan.structure;
  const Task& attention = task_of(s, kBackward, TaskKind::attention);
  plan.gradients[0].made_by = attention.id;
  expect_named(plan, gradient_names(plan)[0], "sends gradients before " + attention.name() + " made them");
  plan.gradients[0].made_by = task_of(s, kForward, TaskKind::gate).id;
  EXPECT_EQ(complaint(plan), "no complaint");
  plan.gradients[0].made_by = 99;
  EXPECT_EQ(complaint(plan), "plan: gradients of layer 1 are made by task 99, which does not exist");
}

TEST(PlanChecks, WaitingGradientBeforeTheBackwardBegins) {
  std::string first;
  LayerCase shape = four_ranks();  // without AlltoAlls nothing precedes the gradients on their lane
  shape.parallel.ep = 1;
  shape.parallel.edp = 2;
  const Plan good = build_plan(find_schedule("fsmoe"), shape, {2, 3, 1000});
  const Plan bad = changed(good, [&](Structure& s) {
    Task& task = s.tasks[gradient_ids(s).at(0)];
    task.after.clear();
    first = task.name();
  });
  expect_named(bad, first, "ended the forward");
}

TEST(PlanChecks, GradientIndicesOutOfRange) {
  const auto names = gradient_names(good_plan());
  for (const int gradient : {-1, 1}) {
    Plan plan = good_plan();
    plan.slices[1].gradient = gradient;
    expect_named(plan, names[1], "the plan has 1");
  }
  Plan plan = good_plan();
  plan.slices.pop_back();
  expect_named(plan, names[1], "sends slice 1, the plan has 1");
}

TEST(PlanChecks, ChunkMissing) {
  for (const Phase phase : {kForward, kBackward})
    for (const TaskKind kind :
         {TaskKind::dispatch, TaskKind::allgather, TaskKind::expert, TaskKind::reducescatter, TaskKind::combine}) {
      const int chunks = phase == kForward ? 2 : 3;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        std::string named;  // the chunk that follows the missing one, or the last where none does
        const Plan bad = changed(good_plan(), [&](Structure& s) {
          drop(s, task_of(s, phase, kind, chunk).id);
          named = task_of(s, phase, kind, chunk + 1 < chunks ? chunk + 1 : chunk - 1).name();
        });
        expect_named(bad, named, chunk + 1 < chunks ? "handles rows from" : "rows pass this layer's");
      }
    }
}

TEST(PlanChecks, StageMissing) {
  for (const TaskKind kind :
       {TaskKind::dispatch, TaskKind::allgather, TaskKind::expert, TaskKind::reducescatter, TaskKind::combine})
    for (const Phase phase : {kForward, kBackward}) {
      const Plan bad = changed(good_plan("ds-moe", {1, 1, 0}), [&](Structure& s) {
        const Task gone = task_of(s, phase, kind);
        drop(s, gone.id);
        for (Task& task : s.tasks)  // let its reader read what it read, so that only the stage is missing
          for (Access& read : task.reads)
            if (read.buffer == gone.writes[0].buffer && read.phase == phase) read = gone.reads[0];
      });
      Structure s = *bad.structure;
      expect_named(bad, task_of(s, phase, TaskKind::order).name(),
                   fmt::format("0 of 39 rows pass this layer's {}", name_of(kind)));
    }
}

TEST(PlanChecks, ChunkTwice) {
  expect_broken_at(
      kForward, TaskKind::expert, 1, [](Structure&, Task& task) { task.chunk = 0; },
      "handles rows from 0, expected from 20");
}

TEST(PlanChecks, ChunkOutOfRange) {
  for (const auto& [chunk, chunks] : {std::pair{2, 2}, {-1, 2}, {0, 0}, {0, -1}}) {
    expect_broken_at(
        kForward, TaskKind::expert, 1,
        [&](Structure&, Task& task) {
          task.chunk = chunk;
          task.chunks = chunks;
        },
        fmt::format("is chunk {} of {}", chunk, chunks));
    expect_broken_at(
        kForward, TaskKind::expert, 1,
        [&](Structure&, Task& task) {
          task.reads[0].chunk = chunk;
          task.reads[0].chunks = chunks;
        },
        fmt::format("reads chunk {} of {}", chunk, chunks));
    expect_broken_at(
        kForward, TaskKind::expert, 1,
        [&](Structure&, Task& task) {
          task.writes[0].chunk = chunk;
          task.writes[0].chunks = chunks;
        },
        fmt::format("writes chunk {} of {}", chunk, chunks));
  }
}

TEST(PlanChecks, RowsThatNobodyWrites) {
  const auto expect_reader = [](const std::function<void(Structure&)>& change, TaskKind reader, int chunk,
                                const std::string& rule) {
    const Plan bad = changed(good_plan(), change);
    Structure s = *bad.structure;
    expect_named(bad, task_of(s, kBackward, reader, chunk).name(), rule);
  };
  expect_reader([](Structure& s) { task_of(s, kBackward, TaskKind::dispatch, 2).writes.clear(); }, TaskKind::allgather,
                2, "reads rows of dispatched that no task writes");
  // Rows 30 to 39 in place of 26 to 39.
  expect_reader(
      [](Structure& s) {
        task_of(s, kBackward, TaskKind::expert, 2).writes[0] = {Buffer::expert_out, kBackward, 0, 3, 4};
      },
      TaskKind::reducescatter, 2, "reads rows of expert_out that no task writes");
  expect_reader(
      [](Structure& s) {
        for (int chunk = 0; chunk < 3; ++chunk) task_of(s, kBackward, TaskKind::combine, chunk).writes.clear();
      },
      TaskKind::order, 0, "reads rows of combined that no task writes");
  expect_reader([](Structure& s) { task_of(s, kBackward, TaskKind::gate).writes.clear(); }, TaskKind::mp_allgather, 0,
                "reads rows of hidden that no task writes");
}

TEST(PlanChecks, RowsThatTwoTasksWrite) {
  expect_broken_at(
      kBackward, TaskKind::allgather, 2,
      [](Structure&, Task& task) {
        task.writes.push_back({Buffer::dispatched, kBackward, 0, 1, 3});
      },
      "writes rows of dispatched that");
  expect_broken_at(
      kBackward, TaskKind::mp_reducescatter, 0,
      [](Structure&, Task& task) {
        task.writes.push_back({Buffer::gathered_input, kBackward, 0, 0, 1});
      },
      "writes rows of gathered_input that");
}

// Which tasks are ordered before `last`, by the lanes and all dependencies but the one of `cut`.
std::set<int> ordered_before(const Structure& s, int last, std::pair<int, int> cut) {
  std::set<int> seen;
  std::vector<int> open{last};
  while (!open.empty()) {
    const Task& task = s.tasks[open.back()];
    open.pop_back();
    std::vector<int> next;
    for (const int p : task.after)
      if (std::pair(task.id, p) != cut) next.push_back(p);
    const auto& queue = s.lanes[task.lane].queue;
    const auto place = std::ranges::find(queue, task.id);
    if (place != queue.begin()) next.push_back(*std::prev(place));
    for (const int p : next)
      if (seen.insert(p).second) open.push_back(p);
  }
  return seen;
}

// Every dependency of every schedule's plan is either implied by others or missed by the checks' reader rule.
TEST(PlanChecks, EveryDependencyThatMattersIsMissed) {
  int needed = 0, implied = 0;
  for (const Schedule& schedule : schedules())
    for (const int degree : {1, 2, 3}) {
      if (!any_decision::fits(schedule, four_ranks()) || (schedule.degrees == DegreePolicy::one && degree > 1))
        continue;
      const int other = schedule.degrees == DegreePolicy::apart ? 4 - degree : degree;
      const Plan plan = good_plan(schedule.name, with_split(schedule, degree, other, 1000));
      for (const Task& task : plan.tasks())
        for (const int p : task.after) {
          const Plan cut = changed(plan, [&](Structure& s) { std::erase(s.tasks[task.id].after, p); });
          // That gradients wait for the end of the backward is a schedule's choice, no rule of plans.
          const bool chosen = task.kind == TaskKind::gradient && plan.tasks()[p].phase == task.phase;
          if (chosen || ordered_before(*plan.structure, task.id, {task.id, p}).contains(p)) {
            EXPECT_EQ(complaint(cut), "no complaint") << schedule.name << ": " << task.name() << " after " << p;
            ++implied;
          } else {
            const std::string rule = task.kind == TaskKind::gradient ? "ended the forward" : "reads";
            expect_named(cut, task.name(), rule);
            ++needed;
          }
        }
    }
  EXPECT_GT(needed, 100);
  EXPECT_GT(implied, 10);
}

}  // namespace
}  // namespace moe
