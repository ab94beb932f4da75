// Whatever fails, run() ends with the first exception, nothing hangs, and nothing runs afterwards.
#include <atomic>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <thread>

#include "moe/base/check.h"
#include "moe/comm/local/local_world.h"
#include "moe/exec/executor.h"
#include "tests/exec/lane_builder.h"

namespace moe {
namespace {

enum class Where { issue, work, nowhere };

/// Counts in an object that ends with the run what ran; fails at one task.
class Failing : public Binding {
 public:
  Failing(Where where, int at) : where_(where), at_(at) {}

  void issue(const Task& task, Stream& stream, Pace) override {
    const bool here = task.id == at_;
    if (here && where_ == Where::issue) throw std::logic_error("issue of " + task.name());
    stream.launch([this, &task, fails = here && where_ == Where::work](void*) {
      if (fails) throw std::logic_error("work of " + task.name());
      ++ran_;
    });
  }
  int ran() const { return ran_; }

 private:
  const Where where_;
  const int at_;
  std::atomic<int> ran_{0};
};

std::string failure_of(Executor& executor, Binding& binding, const std::vector<double>& pace = {}) {
  try {
    executor.run(binding, pace);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "none";
}

TEST(ExecutorFailureTest, AnyTaskOfAnyLaneMayFailAndTheExecutorRunsAgain) {
  const auto device = make_cpu_device();
  const auto structure = random_structure(5, 4, 60).build();
  Executor executor(*device, structure);
  for (int at = 0; at < 60; ++at) {
    for (const Where where : {Where::issue, Where::work}) {
      const auto failing = std::make_unique<Failing>(where, at);
      const std::string expected = where == Where::issue ? "issue of " : "work of ";
      EXPECT_EQ(failure_of(executor, *failing), expected + structure->tasks[at].name());
      EXPECT_LT(failing->ran(), 60);
    }
  }
  Failing well(Where::nowhere, 0);
  EXPECT_EQ(failure_of(executor, well), "none");
  EXPECT_EQ(well.ran(), 60);
}

TEST(ExecutorFailureTest, NothingDownstreamOfAFailureRuns) {
  LaneBuilder lanes(3);
  const int first = lanes.add(0);
  const int second = lanes.add(1, {first});
  lanes.add(2, {second});
  const auto device = make_cpu_device();
  Executor executor(*device, lanes.build());
  for (int round = 0; round < 200; ++round) {
    Failing failing(Where::work, first);
    EXPECT_NE(failure_of(executor, failing), "none");
    EXPECT_EQ(failing.ran(), 0);
  }
}

TEST(ExecutorFailureTest, PacesAfterAFailureAreNotSatOut) {
  LaneBuilder lanes(1);
  for (int i = 0; i < 5; ++i) lanes.add(0);
  const auto device = make_cpu_device();
  Executor executor(*device, lanes.build());
  Failing failing(Where::work, 0);
  const double begin = now_s();
  EXPECT_NE(failure_of(executor, failing, std::vector<double>(5, 3600)), "none");
  EXPECT_LT(now_s() - begin, 600);
}

/// Collectives on a lane of its own between computation, as a rank of a layer would run them.
class RankBinding : public Binding {
 public:
  RankBinding(Communicator& world, int failing_rank, Where where, int at)
      : group_(world.split(0, 0)), fails_(world.rank() == failing_rank), where_(where), at_(at) {}

  void issue(const Task& task, Stream& stream, Pace pace) override {
    names_[task.id] = task.name();
    const bool here = fails_ && task.id == at_;
    if (here && where_ == Where::issue) throw std::logic_error("broken");
    if (here) stream.launch([](void*) { throw std::logic_error("broken"); });
    if (task.group != GroupKind::none) group_->barrier({stream, pace, names_[task.id]});
  }

 private:
  std::unique_ptr<Communicator> group_;
  const bool fails_;
  const Where where_;
  const int at_;
  std::array<std::string, 40> names_;
};

TEST(ExecutorFailureTest, AFailureOnOneRankEndsAllRanksAtOnceWithItsException) {
  LaneBuilder lanes(2);
  for (int i = 0; i < 20; ++i) {
    const int expert = lanes.add(0, i == 0 ? std::vector<int>{} : std::vector<int>{2 * i - 1});
    lanes.add(1, {expert}, GroupKind::ep);
  }
  const auto structure = lanes.build();
  for (const Where where : {Where::issue, Where::work}) {
    for (int at = 0; at < 40; at += 3) {
      const double begin = now_s();
      LocalWorld world(4, 600);
      const auto body = [&](int rank) {
        const auto device = make_cpu_device();
        const auto comm = world.communicator(rank);
        RankBinding binding(*comm, 2, where, at);
        Executor executor(*device, structure);
        executor.run(binding);
      };
      EXPECT_THROW(world.run(body), std::logic_error);
      EXPECT_LT(now_s() - begin, 300);
    }
  }
}

TEST(ExecutorFailureTest, TwoRanksFailingAtDifferentTasksDontWaitForEachOther) {
  LaneBuilder lanes(2);
  lanes.add(0);
  lanes.add(0);
  const int first = lanes.add(0, {}, GroupKind::ep);
  lanes.add(1, {0}, GroupKind::esp);
  lanes.add(1, {first}, GroupKind::esp);
  const auto structure = lanes.build();
  for (int round = 0; round < 50; ++round) {
    LocalWorld world(2, 600);
    const auto body = [&](int rank) {
      const auto device = make_cpu_device();
      const auto comm = world.communicator(rank);
      RankBinding binding(*comm, rank, Where::work, rank);
      Executor executor(*device, structure);
      executor.run(binding);
    };
    EXPECT_THROW(world.run(body), std::logic_error);
  }
}

}  // namespace
}  // namespace moe
