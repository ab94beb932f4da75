// Where a verb measures, by its flags and by what the processes are.
#include "commands/shared/run/target.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe::commands {
namespace {

/// Processes that never talk: one rank each, on as many nodes as testbed-b.
class SilentWorld final : public World {
 public:
  explicit SilentWorld(int rank, int nodes = 8) : rank_(rank) {
    topology_.nodes = nodes;
    topology_.ranks_per_node = 4;
  }
  std::string_view backend() const override { return "gloo"; }
  int ranks() const override { return topology_.nodes * topology_.ranks_per_node; }
  std::vector<int> local_ranks() const override { return {rank_}; }
  const WorldTopology& topology() const override { return topology_; }
  std::unique_ptr<Communicator> communicator(int) override { return nullptr; }
  void run(const std::function<void(int rank)>& body) override { body(rank_); }

 private:
  int rank_;
  WorldTopology topology_;
};

TEST(Target, ThreadsEmulateAProfileOrAreMeasuredThemselves) {
  const Target emulated = target_of("testbed-b", {});
  EXPECT_TRUE(emulated.emulated && emulated.measured && emulated.is_leader());
  EXPECT_EQ(emulated.cluster.nodes, 8);
  EXPECT_EQ(emulated.backend(), "local");
  const Target host = target_of("host", {});
  EXPECT_FALSE(host.emulated || host.measured);
  EXPECT_EQ(host.cluster.nodes * host.cluster.ranks_per_node, 4);
  EXPECT_EQ(target_of("host", {nullptr, DeviceKind::cuda}).cluster.name, "host-cuda");
  EXPECT_EQ(target_of("testbed-b", {nullptr, DeviceKind::cuda}).cluster.name, "testbed-b");
  for (const char* cluster : {"host", "testbed-b"}) {
    EXPECT_EQ(target_of(cluster, {nullptr, DeviceKind::cuda}).file_name(), fmt::format("{}-cuda", cluster));
    EXPECT_EQ(target_of(cluster, {}).file_name(), cluster);
  }
}

TEST(Target, AProfileOfThisMachinesThreadsPredictsThem) {
  const auto written = [](const std::string& path, const std::string& name, int nodes) {
    Profile profile = find_profile("testbed-b");
    profile.name = name;
    profile.nodes = nodes;
    profile.ranks_per_node = 2;
    profile.comm.clear();
    profile.contention = {};
    std::ofstream file(path);
    write_profile(profile, file);
    return path;
  };
  const Scratch scratch;
  for (const char* name : {"host-fitted", "host"}) {
    const Target own = target_of(written(scratch.path("own.toml"), name, 2), {});
    EXPECT_TRUE(own.measured && !own.emulated) << name;
    EXPECT_GT(own.ranks.threads, 0) << name;
  }
  const std::string other = written(scratch.path("other.toml"), "host", 4);
  EXPECT_TRUE(error_of<BadInput>([&] { target_of(other, {}); }).find("with 4 nodes x 2 ranks, expected 2 x 2") !=
              std::string::npos);
  EXPECT_TRUE(target_of(written(scratch.path("elsewhere.toml"), "hosts", 2), {}).emulated);
  EXPECT_TRUE(target_of(scratch.path("own.toml"), {nullptr, DeviceKind::cuda}).emulated);  // it was not of the GPU
}

TEST(Target, AnUnknownClusterIsToldOfThisMachinesOwnRanks) {
  SilentWorld processes(0);
  for (World* world : {static_cast<World*>(nullptr), static_cast<World*>(&processes)}) {
    const std::string message = error_of<BadInput>([&] { target_of("hst", {world}); });
    EXPECT_TRUE(message.starts_with("cluster: found 'hst', expected a file or one of: a100-8, ")) << message;
    EXPECT_NE(message.find(", host, "), std::string::npos) << message;
    EXPECT_TRUE(message.ends_with("; did you mean 'host'?")) << message;
  }
}

TEST(Target, ProcessesAreMeasuredOrPredictedByAProfileOfTheirShape) {
  SilentWorld processes(0);
  const Target host = target_of("host", {&processes});
  EXPECT_FALSE(host.emulated || host.measured);
  EXPECT_EQ(host.cluster.name, "gloo-8x4");
  const Target predicted = target_of("testbed-b", {&processes});
  EXPECT_TRUE(predicted.measured);
  EXPECT_FALSE(predicted.emulated) << "processes are never paced";
  SilentWorld fewer(0, 2);
  try {
    target_of("testbed-b", {&fewer});
    ADD_FAILURE() << "a profile of other nodes was taken";
  } catch (const BadInput& error) {
    EXPECT_STREQ(error.what(),
                 "--cluster: found testbed-b with 8 nodes x 4 ranks, expected 2 x 4, as the processes have");
  }
}

TEST(Target, OnlyTheProcessThatLeadsWritesRecords) {
  const Scratch scratch;
  for (const int rank : {1, 0}) {
    SilentWorld process(rank);
    const Target target = target_of("host", {&process});
    EXPECT_EQ(target.is_leader(), rank == 0);
    const std::string path = scratch.path("records.jsonl");
    target.open_records(path, {}, {}).end();
    EXPECT_EQ(std::filesystem::exists(path), rank == 0);
  }
}

}  // namespace
}  // namespace moe::commands
