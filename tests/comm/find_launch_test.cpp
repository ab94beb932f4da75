// Which rank we are, from flags and made-up environments.
#include <gtest/gtest.h>
#include <map>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/comm/launch.h"

namespace moe {
namespace {

using Variables = std::map<std::string, std::string>;

Launch find(const Variables& variables, const LaunchFlags& flags = {}) {
  return find_launch(flags, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const Variables& variables, const LaunchFlags& flags = {}) {
  try {
    return "accepted: " + describe(find(variables, flags));
  } catch (const BadInput& error) {
    return error.what();
  }
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in " << text;
}

Variables join(const std::vector<Variables>& all) {
  Variables joined;
  for (const Variables& each : all) joined.insert(each.begin(), each.end());
  return joined;
}

const Variables kMaster{{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
const Variables kTorchrun{{"RANK", "1"}, {"WORLD_SIZE", "10"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "10"}};
const Variables kPmi{{"PMI_RANK", "3"}, {"PMI_SIZE", "10"}};
const Variables kMvapich{{"MV2_COMM_WORLD_RANK", "4"}, {"MV2_COMM_WORLD_SIZE", "10"}};
const Variables kSlurm{{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "10"}};

TEST(LaunchTest, NothingSaidIsOneRankAlone) {
  const Launch launch = find({});
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.ranks, 1);
  EXPECT_TRUE(launch.host.empty() && launch.port_file.empty());
  EXPECT_EQ(describe(launch), "rank 0 of 1 by itself");
}

TEST(LaunchTest, FlagsGoBeforeTorchrunBeforeOpenMpiBeforePmiBeforeMvapichBeforeSlurm) {
  const std::vector<Variables> by_precedence{kTorchrun, kOpenMpi, kPmi, kMvapich, kSlurm};
  for (size_t highest = 0; highest < by_precedence.size(); ++highest) {
    std::vector<Variables> set{kMaster};
    set.insert(set.end(), by_precedence.begin() + static_cast<long>(highest), by_precedence.end());
    EXPECT_EQ(find(join(set)).rank, static_cast<int>(highest) + 1);
    EXPECT_EQ(find(join(set)).ranks, 10);
    EXPECT_EQ(find(join(set), {.rank = 7, .ranks = 9}).rank, 7);
    EXPECT_EQ(find(join(set), {.rank = 7, .ranks = 9}).ranks, 9);
  }
}

TEST(LaunchTest, SaysWhatWasChosen) {
  EXPECT_EQ(describe(find(join({kMaster, kTorchrun}))),
            "rank 1 of 10 by torchrun's variables (RANK), store 10.0.0.1:29500");
  EXPECT_EQ(describe(find(kSlurm, {.rendezvous = "head:1234"})),
            "rank 5 of 10 by Slurm's variables (SLURM_PROCID), store head:1234");
}

TEST(LaunchTest, HalfSetEnvironmentsNameBothVariables) {
  const std::vector<std::pair<std::string, std::string>> pairs{{"RANK", "WORLD_SIZE"},
                                                               {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                               {"PMI_RANK", "PMI_SIZE"},
                                                               {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"}};
  for (const auto& [rank, ranks] : pairs) {
    expect_parts(refusal(join({kMaster, {{rank, "3"}}})),
                 {rank + ": found '3'", ranks + " is not set", "expected both"});
    expect_parts(refusal(join({kMaster, {{ranks, "4"}}})),
                 {ranks + ": found '4'", rank + " is not set", "expected both"});
  }
  expect_parts(refusal(join({kMaster, {{"SLURM_PROCID", "3"}}})),
               {"SLURM_PROCID: found '3'", "SLURM_NTASKS is not set"});
  expect_parts(refusal({}, {.rank = 3}), {"found 3", "expected both"});
  expect_parts(refusal({}, {.ranks = 3}), {"found 3", "expected both"});
}

TEST(LaunchTest, WhatIsNoNumberOrOutOfRangeIsNamed) {
  for (const std::string text : {"", "x", "1x", " 1", "1.5", "-1", "99999999999"}) {
    expect_parts(refusal(join({kMaster, {{"RANK", text}, {"WORLD_SIZE", "4"}}})),
                 {"RANK: found '" + text + "'", "number"});
    expect_parts(refusal(join({kMaster, {{"RANK", "0"}, {"WORLD_SIZE", text}}})),
                 {"WORLD_SIZE: found '" + text + "'", "number"});
    expect_parts(refusal(join({{{"MASTER_ADDR", "a"}, {"MASTER_PORT", text}}, kTorchrun})),
                 {"MASTER_PORT: found '" + text + "'", "number"});
  }
  expect_parts(refusal(join({kMaster, {{"RANK", "4"}, {"WORLD_SIZE", "4"}}})), {"RANK: found 4", "WORLD_SIZE = 4"});
  expect_parts(refusal(join({kMaster, {{"RANK", "0"}, {"WORLD_SIZE", "0"}}})), {"WORLD_SIZE: found '0'"});
  expect_parts(refusal({}, {.rank = 4, .ranks = 4}), {"rank 4 of 4"});
  expect_parts(refusal({}, {.ranks_per_node = -1}), {"ranks_per_node: found -1"});
  expect_parts(refusal({}, {.ranks_per_node = -1, .names = {"r", "--nodes"}}), {"--nodes: found -1"});
}

TEST(LaunchTest, ABatchScriptIsNoRankButItsStepsAre) {
  const Variables script{{"SLURM_JOB_ID", "77"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}};
  EXPECT_EQ(find(script).ranks, 1);
  const Launch step = find(join({kMaster, script, {{"SLURM_STEP_ID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}}}));
  EXPECT_EQ(step.ranks, 4);
  EXPECT_EQ(find({{"SLURM_NTASKS", "8"}}).ranks, 1) << "an allocation without srun";
}

TEST(LaunchTest, RendezvousGoesBeforeMasterAddress) {
  const Launch launch = find(join({kMaster, kTorchrun}), {.rendezvous = "[fe80::1]:4000"});
  EXPECT_EQ(launch.host, "fe80::1");
  EXPECT_EQ(launch.port, 4000);
  for (const std::string text : {"host", ":80", "host:", "host:x", "host:0", "host:65536", "[]:80"})
    expect_parts(refusal(kTorchrun, {.rendezvous = text}), {"rendezvous"});
}

TEST(LaunchTest, HalfAMasterAddressIsRefused) {
  expect_parts(refusal(join({kTorchrun, {{"MASTER_ADDR", "a"}}})),
               {"MASTER_ADDR: found 'a'", "MASTER_PORT is not set"});
  expect_parts(refusal(join({kTorchrun, {{"MASTER_PORT", "1"}}})),
               {"MASTER_PORT: found '1'", "MASTER_ADDR is not set"});
  expect_parts(refusal(join({kTorchrun, {{"MASTER_ADDR", ""}, {"MASTER_PORT", "1"}}})), {"MASTER_ADDR: found ''"});
}

TEST(LaunchTest, RanksOfOneHostMeetByAFileNamedAfterTheJob) {
  const Variables local{
      {"XDG_RUNTIME_DIR", "/run/user/7"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "10"}, {"PMIX_NAMESPACE", "prterun@1/2"}};
  const Launch launch = find(join({kOpenMpi, local}));
  expect_parts(launch.port_file, {"/run/user/7/moetune-", "-prterun_1_2.port"});
  EXPECT_TRUE(launch.host.empty());
  expect_parts(describe(launch), {"rank 2 of 10 by Open MPI's variables", launch.port_file});
  const Variables step{{"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "2"}, {"SLURM_STEP_NUM_NODES", "1"}};
  expect_parts(find(join({kSlurm, step})).port_file, {"/tmp/moetune-", "-77.2.port"});
  const Variables by_pmi{{"PMI_JOBID", "77.2"}, {"SLURM_STEP_ID", "2"}, {"SLURM_STEP_NUM_NODES", "1"}};
  expect_parts(find(join({kPmi, by_pmi})).port_file, {"/tmp/moetune-", "-77.2.port"});
  const Variables unnamed{{"LOCAL_WORLD_SIZE", "10"}};
  EXPECT_EQ(find(join({kTorchrun, unnamed})).port_file, find(join({kTorchrun, unnamed})).port_file);
}

TEST(LaunchTest, WhatLaunchStartsMeetsOnItsBoard) {
  const LaunchBoard board;
  const auto set = [](int descriptor) { return Variables{{LaunchBoard::kVariable, std::to_string(descriptor)}}; };
  const Launch launch = find(join({kTorchrun, set(board.descriptor())}));
  EXPECT_TRUE(launch.board && launch.host.empty() && launch.port_file.empty());
  EXPECT_EQ(describe(launch), "rank 1 of 10 by launch, store on this host");
  EXPECT_EQ(find(join({kTorchrun, kMaster, set(board.descriptor())})).host, "10.0.0.1");
  expect_parts(refusal(join({kTorchrun, set(12345)})), {"MOETUNE_LAUNCH_BOARD: found '12345'", "expected it unset"});
  EXPECT_EQ(find(set(12345)).ranks, 1);
}

TEST(LaunchTest, RanksOfSeveralHostsNeedAnAddress) {
  expect_parts(refusal(kTorchrun), {"10 ranks by torchrun's variables", "expected rendezvous HOST:PORT"});
  expect_parts(refusal(join({kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "5"}}})),
               {"only 5 of them", "expected rendezvous HOST:PORT"});
  expect_parts(refusal(join({kSlurm, {{"SLURM_NNODES", "2"}}})), {"expected rendezvous HOST:PORT"});
}

TEST(LaunchTest, TheAgentsStoreIsOnlyUsedAndRestartsMeetInIt) {
  const Variables agent{
      {"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RUN_ID", "abc"}, {"TORCHELASTIC_RESTART_COUNT", "1"}};
  const Launch first = find(join({kMaster, kTorchrun, agent}));
  EXPECT_TRUE(first.served);
  expect_parts(describe(first), {"the launcher's store 10.0.0.1:29500"});
  Variables restarted = agent;
  restarted["TORCHELASTIC_RESTART_COUNT"] = "2";
  EXPECT_EQ(first.run, find(join({kMaster, kTorchrun, restarted})).run);  // agents count them apart
  EXPECT_FALSE(find(join({kMaster, kTorchrun})).served);
}

}  // namespace
}  // namespace moe
