// Paced tasks that slow each other down, on real streams and communicators, beside the replay of the same rule. A busy
// machine is late by milliseconds, a wrong rule by a share of the time: where ends disagree, all is paced twice as
// long.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <utility>

#include "moe/comm/local/local_world.h"
#include "moe/exec/executor.h"
#include "moe/simulator/fluid_replay.h"
#include "tests/exec/lane_builder.h"

namespace moe {
namespace {

constexpr int kRanks = 2, kRuns = 5;

enum { kCompute, kComm, kGradient };

/// One stage: compute, comm (both networks) and gradient (inter).
class ContendedTest : public testing::Test {
 protected:
  ContendedTest() {
    Structure& s = lanes_.structure();
    s.lanes[kCompute].kind = LaneKind::compute;
    s.lanes[kComm].kind = LaneKind::comm;
    s.lanes[kGradient].kind = LaneKind::gradient;
    networks_[GroupKind::ep] = networks_[GroupKind::dp] = Network::inter;
    networks_[GroupKind::esp] = Network::intra;
  }

  int add(int lane, GroupKind group, double units, std::vector<int> after = {}) {
    const int id = lanes_.add(lane, std::move(after), group);
    units_.push_back(units);
    return id;
  }

  /// All ends are within 2 % of the makespan, in the median over runs; of each task the latest rank's.
  void expect_replayed() {
    for (double unit_s = 0.02; unit_s < 0.5; unit_s *= 2)
      if (is_replayed(unit_s)) return;
    ADD_FAILURE() << "not as replayed, however slow";
  }

  LaneBuilder lanes_{3};
  GroupNetworks networks_{};
  Contention contention_;

 private:
  bool is_replayed(double unit_s) const {
    std::vector<double> seconds = units_;
    for (double& each : seconds) each *= unit_s;
    Contention contention = contention_;
    for (const ContentionPair& pair : contention_pairs()) pair.stall_s(contention) *= unit_s;
    const Timeline replayed = fluid_timeline(*lanes_.build(), networks_, contention, seconds);
    auto [ends, overruns] = run(seconds, contention);
    size_t furthest = 0;
    double off = -1;
    for (size_t id = 0; id < ends.size(); ++id) {
      std::ranges::nth_element(ends[id], ends[id].begin() + kRuns / 2);
      const double here = std::abs(ends[id][kRuns / 2] - replayed.end_s[id]) / replayed.makespan_s;
      if (here > off) furthest = id, off = here;
    }
    fmt::print("{} tasks in {:.0f} ms: task {} ends furthest off, by {:.2f} % of that; overruns: {}\n", ends.size(),
               1e3 * replayed.makespan_s, furthest, 100 * off, overruns);
    return off <= 0.02 && overruns <= static_cast<int64_t>(seconds.size()) * kRanks * kRuns / 100;
  }

  /// Collectives are barriers, computation is empty.
  class Waits : public Binding {
   public:
    Waits(LocalWorld& world, int rank) {
      const auto world_comm = world.communicator(rank);
      for (auto& lane : lanes_) lane = world_comm->split(0, rank);
    }
    void issue(const Task& task, Stream& stream, Pace pace) override {
      if (task.group != GroupKind::none) lanes_[task.lane]->barrier({stream, pace, "task"});
    }

   private:
    std::array<std::unique_ptr<Communicator>, 3> lanes_;
  };

  /// The ends, [task][run], and how many tasks took longer than their pace.
  std::pair<std::vector<std::vector<double>>, int64_t> run(const std::vector<double>& seconds,
                                                           const Contention& contention) const {
    const auto structure = lanes_.build();
    std::vector<int> resources;
    for (const Task& task : structure->tasks)
      resources.push_back(static_cast<int>(resource_of(task, structure->lanes[task.lane], networks_)));
    const Slowdown slowdown(contention);
    Pacer pacer(kRanks, kResources, slowdown, [&](int of, int by) { return slowdown.stall_s(of, by); });
    std::array<int64_t, kRanks> overruns{};
    std::vector<std::vector<std::vector<double>>> ends(
        kRanks, std::vector(seconds.size(), std::vector<double>(kRuns)));  // [rank][task][run]
    LocalWorld world(kRanks);
    world.run([&](int rank) {
      const auto device = make_cpu_device();
      const auto start = device->make_stream("start");
      const auto world_comm = world.communicator(rank);
      Waits waits(world, rank);
      Executor executor(*device, structure);
      for (size_t i = 0; i < kRuns; ++i) {
        world_comm->barrier({.stream = *start});
        start->synchronize();
        const RunTimes& times = executor.run(waits, seconds, std::nullopt, {&pacer, rank, resources});
        overruns[rank] += times.overruns;
        for (size_t id = 0; id < seconds.size(); ++id) ends[rank][id][i] = times.tasks[id].end_s;
      }
    });
    for (size_t id = 0; id < seconds.size(); ++id)
      for (size_t i = 0; i < kRuns; ++i) ends[0][id][i] = std::max(ends[0][id][i], ends[1][id][i]);
    return {std::move(ends[0]), overruns[0] + overruns[1]};
  }

  std::vector<double> units_;
};

TEST_F(ContendedTest, FactorsOfTheOtherLanes) {
  contention_.compute_by_inter = 1.5;
  contention_.inter_by_compute = 2;
  contention_.compute_by_intra = 4;
  const int dispatch = add(kComm, GroupKind::ep, 3);
  add(kCompute, GroupKind::none, 5);
  const int allgather = add(kComm, GroupKind::esp, 2, {dispatch});
  add(kCompute, GroupKind::none, 1, {allgather});
  expect_replayed();  // 6, 8.5, 8, 9.5 units
}

// As MoNTA's O3: copies on a lane of their own beside the next chunk's AllGather.
TEST_F(ContendedTest, CopiesBesideAllGathers) {
  lanes_.structure().lanes[kGradient].kind = LaneKind::copy;
  contention_.intra_by_copy = 1.25;
  contention_.copy_by_intra = 2;
  contention_.stall_s[Resource::intra][Resource::copy] = 0.5;
  contention_.stall_s[Resource::copy][Resource::intra] = 0.25;
  for (int chunk = 0; chunk < 4; ++chunk) add(kGradient, GroupKind::none, 1, {add(kComm, GroupKind::esp, 2)});
  expect_replayed();
}

TEST_F(ContendedTest, LanesThatShareANetwork) {
  const int dispatch = add(kComm, GroupKind::ep, 2);
  add(kGradient, GroupKind::dp, 3);
  add(kComm, GroupKind::esp, 1.5, {dispatch});
  expect_replayed();  // 4, 5, 5.5 units
}

TEST_F(ContendedTest, APipelineOfChunks) {
  contention_ = {1.5, 1.4, 1.1, 1.2, 1.3, 1.25};
  int gathered = -1;
  std::vector<int> experts;
  for (int chunk = 0; chunk < 6; ++chunk) {
    const int dispatched = add(kComm, GroupKind::ep, 0.4);
    gathered = add(kComm, GroupKind::esp, 0.3, {dispatched});
    experts.push_back(add(kCompute, GroupKind::none, 0.6, {gathered}));
    add(kGradient, GroupKind::dp, 0.5, {gathered});
  }
  for (const int expert : experts) add(kComm, GroupKind::ep, 0.4, {add(kComm, GroupKind::esp, 0.3, {expert})});
  expect_replayed();
}

}  // namespace
}  // namespace moe
