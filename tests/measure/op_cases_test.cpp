#include "moe/measure/ops/op_cases.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <set>

#include "moe/base/check.h"
#include "moe/measure/modules/module_run.h"
#include "moe/measure/ops/op_bench.h"
#include "tests/measure/host_cluster.h"

namespace moe::measure {
namespace {

TEST(OpCases, AreFsmoesSizesAndLastTwoMillisecondsAtLeast) {
  const auto cases = emulated_cases(find_profile("testbed-b"));
  std::map<std::string, int> sizes;
  std::map<std::string, double> shortest;
  std::set<std::string> keys;
  for (const OpCase& c : cases) {
    ++sizes[c.series()];
    EXPECT_TRUE(keys.insert(c.key()).second) << c.key();
    const double lasts = c.modelled_s * c.dilation;
    shortest[c.series()] = shortest.contains(c.series()) ? std::min(shortest[c.series()], lasts) : lasts;
  }
  EXPECT_EQ(sizes["alltoall inter 8"], 24);
  EXPECT_EQ(sizes["allgather intra 4"], 24);
  EXPECT_EQ(sizes["reducescatter intra 4"], 24);
  EXPECT_EQ(sizes["allreduce inter 8"], 24);
  EXPECT_EQ(sizes["gemm float32"], 12);
  EXPECT_TRUE(keys.contains("alltoall/inter/8/1048576"));
  EXPECT_TRUE(keys.contains("alltoall/inter/8/25165824"));
  for (const auto& [series, seconds] : shortest) EXPECT_GE(seconds, 2e-3 * (1 - 1e-9)) << series;
}

TEST(OpCases, EmulatedCollectivesFollowMeasuredCurves) {
  Profile cluster;
  cluster.nodes = 2;
  CommRow row{.op = Op::allgather, .network = Network::inter, .ranks = 2, .alpha_s = 1, .beta_s_per_byte = 1};
  row.points = {{1000, 1e-3}, {2000, 2e-3}, {4000, 8e-3}};
  cluster.comm.push_back(row);
  std::vector<double> seconds;
  for (const OpCase& c : emulated_cases(cluster, {.begin = 512, .end = 8192, .factor = 4})) {
    EXPECT_EQ(c.op, Op::allgather);
    seconds.push_back(c.modelled_s);
  }
  ASSERT_EQ(seconds.size(), 3U);
  EXPECT_NEAR(seconds[0], 0.512e-3, 1e-15);
  EXPECT_NEAR(seconds[1], 2.144e-3, 1e-15) << "2048 bytes";
  EXPECT_NEAR(seconds[2], 20.576e-3, 1e-15) << "8192 bytes";
}

TEST(OpCases, ModulesHaveEightSizesAPhase) {
  Profile host;
  host.nodes = host.ranks_per_node = 2;
  const auto modules = registered_modules();
  std::map<std::string, int> sizes;
  std::set<std::string> keys;
  for (const OpCase& c : module_cases(modules, host)) {
    ++sizes[c.series()];
    EXPECT_TRUE(keys.insert(c.key()).second) << c.key();
  }
  EXPECT_EQ(sizes.size(), 2 * (modules.size() + 4)) << "both attentions at three sequence lengths";
  for (const auto& [series, count] : sizes) EXPECT_EQ(count, 8) << series;
}

TEST(OpCases, ContentionIsRefused) {
  Profile profile = find_profile("testbed-b");
  profile.contention.intra_by_inter = 1.2;
  EXPECT_THROW(emulated_cases(profile), BadInput);
}

void bench_every(const std::vector<OpCase>& cases, int repetitions,
                 const std::function<void(const OpCase&, const OpResult&)>& done) {
  std::vector<size_t> all(cases.size());
  std::iota(all.begin(), all.end(), 0);
  OpSettings settings;
  settings.repetitions = repetitions;
  bench_ops({}, cases, settings, {done}, all);
}

TEST(OpCases, SizesAreBetweenTheirBounds) {
  OpSizes sizes{.begin = 1000, .end = 9000};
  EXPECT_EQ(bytes_of(sizes, 1), (std::vector<int64_t>{1000, 2000, 4000, 8000}));
  sizes.step = 4000;
  EXPECT_EQ(bytes_of(sizes, 1), (std::vector<int64_t>{1000, 5000, 9000}));
  EXPECT_EQ(bytes_of(OpSizes(), 1).back(), 24 << 20);
  sizes.begin = 10000;
  EXPECT_THROW(bytes_of(sizes, 1), BadInput);
  EXPECT_THROW(bytes_of({.begin = 1, .end = 2, .factor = 1}, 1), BadInput);
}

TEST(OpCases, RealSizesAreOfWholeElementsForEveryRank) {
  Profile cluster;
  cluster.nodes = 3;
  std::vector<double> bytes;
  for (const OpCase& c : real_cases(cluster, "gloo", {.begin = 1, .end = 64, .dtype = DType::float64})) {
    if (c.op != Op::alltoall) continue;
    bytes.push_back(c.bytes);
    EXPECT_EQ(static_cast<double>(c.real_elements) * 8, c.bytes);
  }
  EXPECT_EQ(bytes, (std::vector<double>{24, 48}));
}

std::vector<std::string> series_of(const std::vector<OpCase>& cases, Op op) {
  std::vector<std::string> series;
  for (const OpCase& c : cases)
    if (c.op == op && (series.empty() || series.back() != c.series())) series.push_back(c.series());
  return series;
}

// Stages are neighbouring nodes, or neighbouring ranks of a node; a message has as many sizes as an alltoall.
TEST(OpCases, SendsAreOfPairsOverEachNetworkThatThereIs) {
  using Names = std::vector<std::string>;
  Profile cluster;
  for (const auto& [nodes, ranks_per_node, expected] : {std::tuple(2, 2, Names{"sendrecv inter 2", "sendrecv intra 2"}),
                                                        {3, 1, Names{"sendrecv inter 2"}},
                                                        {1, 3, Names{"sendrecv intra 2"}},
                                                        {1, 1, Names{}}}) {
    cluster.nodes = nodes;
    cluster.ranks_per_node = ranks_per_node;
    const auto cases = real_cases(cluster, "gloo");
    EXPECT_EQ(series_of(cases, Op::sendrecv), expected) << nodes << " x " << ranks_per_node;
    for (const OpCase& c : cases) {
      if (c.op != Op::sendrecv) continue;
      EXPECT_EQ(c.group, (RankGroup{2, c.network == Network::inter ? ranks_per_node : 1}));
    }
    EXPECT_EQ(std::ranges::count(cases, "sendrecv inter 2", &OpCase::series), nodes > 1 ? 24 : 0);
  }
}

TEST(OpCases, SumsAreOfTheGroupsAskedForOnceEach) {
  Profile cluster;
  cluster.nodes = 4;
  cluster.ranks_per_node = 2;
  const std::vector<std::pair<Network, RankGroup>> sums{
      {Network::inter, {2, 2}}, {Network::inter, {2, 2}}, {Network::inter, {4, 2}}};
  EXPECT_EQ(series_of(real_cases(cluster, "gloo", {}, DeviceKind::cpu, sums), Op::allreduce),
            (std::vector<std::string>{"allreduce inter 4", "allreduce inter 2"}));
}

// A row of an emulated cluster's sends is timed like its other rows.
TEST(OpCases, AnEmulatedClustersSendsAreTimed) {
  Profile cluster;
  cluster.nodes = 2;
  cluster.comm.push_back({.op = Op::sendrecv, .network = Network::inter, .ranks = 2, .alpha_s = 1e-3});
  const auto cases = emulated_cases(cluster);
  EXPECT_EQ(series_of(cases, Op::sendrecv), std::vector<std::string>{"sendrecv inter 2"});
  EXPECT_EQ(cases.size(), 24U);
  bench_every({cases.front()}, 2, [](const OpCase&, const OpResult& result) {
    EXPECT_EQ(result.wrong.first, "");
    for (const auto& ranks : result.seconds)
      for (const double seconds : ranks) EXPECT_GE(seconds, 1e-3);
  });
}

TEST(OpCases, OfAGpuAreLargeEnoughForIt) {
  Profile host;
  host.nodes = host.ranks_per_node = 2;
  std::map<std::string, std::vector<double>> sizes;
  for (const OpCase& c : real_cases(host, "local", {}, DeviceKind::cuda)) {
    sizes[c.series()].push_back(c.real_dim > 0 ? static_cast<double>(c.real_dim) : c.bytes);
    EXPECT_EQ(buffer_bytes(c), c.real_dim > 0 ? 12.0 * static_cast<double>(c.real_dim * c.real_dim) : 2 * c.bytes);
  }
  EXPECT_EQ(sizes.size(), 7U) << "four collectives, sendrecv over both networks, gemm";
  for (const auto& [series, of_series] : sizes) {
    const bool gemm = series.starts_with("gemm");
    EXPECT_EQ(of_series.front(), gemm ? 512 : 1 << 20) << series;
    EXPECT_EQ(of_series.back(), gemm ? 8192 : 1 << 28) << series;
    EXPECT_EQ(of_series.size(), gemm ? 12U : 17U) << series;
    EXPECT_TRUE(std::ranges::is_sorted(of_series)) << series;
  }
  EXPECT_EQ(gpu_sizes({.begin = 64, .end = 128}).end, 128) << "what is asked for";
}

// Testbed B: 8 nodes of 4; the pair's phases one by one, by the rows of Figure 5.
TEST(OpCases, ParmsPairTakesItsPhasesPipelined) {
  const auto cases = emulated_parm_cases(find_profile("testbed-b"));
  EXPECT_EQ(cases.size(), 48U);
  for (const OpCase& c : cases) {
    EXPECT_EQ(c.ranks, 32);
    EXPECT_GE(c.modelled_s * c.dilation, 2e-3 * (1 - 1e-9)) << c.key();
    const double alltoall = 1.75e-4 + 3.06e-10 * c.bytes, gather = 3.2e-5 + 1.68e-10 * c.bytes / 8;
    double exchanged = 0, gathered = 0;
    for (int phase = 0; phase < 8; ++phase) {
      exchanged += alltoall / 8;
      gathered = std::max(gathered, exchanged) + gather;
    }
    EXPECT_NEAR(c.modelled_s, c.op == Op::saa ? gathered : alltoall, 1e-12) << c.key();
  }
  Profile slow_gather = find_profile("testbed-b");
  for (CommRow& row : slow_gather.comm)
    if (row.op == Op::allgather) row.alpha_s = 1;
  EXPECT_NEAR(emulated_parm_cases(slow_gather, {.begin = 1, .end = 1}).back().modelled_s, 8 + 1.75e-4 / 8, 1e-8);
}

TEST(OpCases, ParmsPairNeedsNodesOfSeveralRanksAndTheirRows) {
  Profile cluster = host_cluster();
  EXPECT_EQ(series_of(real_parm_cases(cluster, "gloo"), Op::saa), std::vector<std::string>{"saa inter 4"});
  EXPECT_EQ(series_of(real_parm_cases(cluster, "gloo"), Op::a2a_ep_esp),
            std::vector<std::string>{"a2a-ep-esp inter 4"});
  EXPECT_TRUE(emulated_parm_cases(cluster).empty()) << "without rows";
  cluster.nodes = 1;
  EXPECT_TRUE(real_parm_cases(cluster, "gloo").empty());
  cluster.nodes = 2;
  cluster.ranks_per_node = 1;
  EXPECT_TRUE(real_parm_cases(cluster, "gloo").empty());
}

// Both ways that its phases and a node's ranks may relate: as many phases as real nodes, and the nominal cluster's.
TEST(OpBench, ParmsPairIsRightAndKeepsItsPace) {
  std::vector<OpCase> cases = real_parm_cases(host_cluster(), "local", {.begin = 1 << 12, .end = 1 << 14});
  Profile three = find_profile("testbed-b");
  three.nodes = 3;
  for (CommRow& row : three.comm)
    if (row.network == Network::inter) row.ranks = 3;
  for (const Profile& cluster : {find_profile("testbed-b"), three})
    std::ranges::move(emulated_parm_cases(cluster, {.begin = 1 << 20, .end = 1 << 20}), std::back_inserter(cases));
  ASSERT_EQ(cases.size(), 6U + 4U);
  bench_every(cases, 2, [&](const OpCase& c, const OpResult& result) {
    EXPECT_EQ(result.wrong.first, "") << c.key();
    for (const auto& ranks : result.seconds)
      for (const double seconds : ranks) EXPECT_GE(seconds, c.modelled_s * (1 - 1e-6)) << c.key();
  });
}

TEST(OpCases, DispatchersAreOverAllRanksBesideTheDirectAlltoall) {
  Profile cluster = host_cluster();
  EXPECT_EQ(series_of(real_dispatcher_cases(cluster, "gloo", {"1dh", "2dh"}), Op::alltoall),
            (std::vector<std::string>{"alltoall inter 4", "alltoall inter 4 1dh", "alltoall inter 4 2dh"}));
  for (const OpCase& c : real_dispatcher_cases(cluster, "gloo", {"2dh"})) {
    EXPECT_EQ(c.parameters(cluster).has("algorithm"), c.is_dispatched()) << c.key();
    EXPECT_EQ(c.group, (RankGroup{4, 1}));
  }
  EXPECT_TRUE(real_dispatcher_cases(cluster, "gloo", {}).empty());
  EXPECT_TRUE(emulated_dispatcher_cases(cluster, {"2dh"}).empty()) << "without rows";
  cluster.nodes = 1;
  EXPECT_TRUE(real_dispatcher_cases(cluster, "gloo", {"2dh"}).empty());
}

// In blocks of one element and of many; the emulated ones keep their row's pace.
TEST(OpBench, DispatchersAreRightAndKeepTheirPace) {
  Profile emulated = host_cluster();
  for (const char* algorithm : {"1dh", "2dh"})
    emulated.comm.push_back({.op = Op::alltoall,
                             .network = Network::inter,
                             .ranks = 4,
                             .alpha_s = 1e-3,
                             .beta_s_per_byte = 1e-10,
                             .algorithm = algorithm});
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    std::vector<OpCase> cases = real_dispatcher_cases(host_cluster(), "local", {"1dh", "2dh"},
                                                      {.begin = 16, .end = 1 << 16, .factor = 64, .dtype = dtype});
    ASSERT_EQ(cases.size(), 9U);
    std::ranges::move(
        emulated_dispatcher_cases(emulated, {"1dh", "2dh"}, {.begin = 1 << 20, .end = 1 << 20, .dtype = dtype}),
        std::back_inserter(cases));
    ASSERT_EQ(cases.size(), 11U);
    bench_every(cases, 2, [&](const OpCase& c, const OpResult& result) {
      EXPECT_EQ(result.wrong.first, "") << c.key();
      for (const auto& ranks : result.seconds)
        for (const double seconds : ranks) EXPECT_GE(seconds, c.modelled_s * (1 - 1e-6)) << c.key();
    });
  }
}

// Copies from the host arrive as they were sent, and the emulated ones keep their row's pace.
TEST(OpBench, HostCopiesAreRightAndKeepTheirPace) {
  Profile emulated = host_cluster();
  EXPECT_TRUE(emulated_host_copies(emulated).empty()) << "without a row";
  emulated.compute.push_back({.op = Op::host_copy, .alpha_s = 1e-3, .beta_s_per_byte = 1e-9});
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
    std::vector<OpCase> cases = real_host_copies("local", {.begin = 16, .end = 1 << 20, .factor = 64, .dtype = dtype});
    ASSERT_EQ(cases.size(), 3U);
    std::ranges::move(emulated_host_copies(emulated, {.begin = 1 << 20, .end = 1 << 20, .dtype = dtype}),
                      std::back_inserter(cases));
    ASSERT_EQ(cases.size(), 4U);
    EXPECT_DOUBLE_EQ(cases.back().modelled_s, 1e-3 + 1e-9 * (1 << 20));
    bench_every(cases, 2, [&](const OpCase& c, const OpResult& result) {
      EXPECT_EQ(result.wrong.first, "") << c.key();
      for (const auto& ranks : result.seconds)
        for (const double seconds : ranks) EXPECT_GE(seconds, c.modelled_s * (1 - 1e-6)) << c.key();
    });
  }
}

// A few small cases of each op, really run: right results, as many samples as asked, none faster than its pace.
TEST(OpBench, ChecksAndTimesEveryOp) {
  std::vector<OpCase> cases;
  std::set<std::string> seen;
  for (const OpCase& c : emulated_cases(find_profile("testbed-b")))
    if (seen.insert(c.series()).second) cases.push_back(c);
  std::vector<std::string> done;
  bench_every(cases, 3, [&](const OpCase& c, const OpResult& result) {
    done.push_back(c.key());
    EXPECT_EQ(result.wrong.first, "") << c.key();
    ASSERT_EQ(result.seconds.size(), 3U) << c.key();
    for (const auto& ranks : result.seconds)
      for (const double seconds : ranks) EXPECT_GE(seconds, c.modelled_s * (1 - 1e-6)) << c.key();
  });
  ASSERT_EQ(done.size(), cases.size());  // one of each series: in order
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(done[i], cases[i].key());
}

// GEMMs of 16 bits are a GPU's.
TEST(OpBench, HostOpsAreChecked) {
  const Profile host = host_cluster();
  for (const auto& [dtype, ops] : {std::pair(DType::float32, 7U), {DType::bfloat16, 6U}, {DType::float16, 6U}}) {
    std::vector<OpCase> cases;
    std::set<std::string> seen;
    for (const OpCase& c : real_cases(host, "local", {.dtype = dtype}))
      if (seen.insert(c.series()).second) cases.push_back(c);
    EXPECT_EQ(cases.size(), ops) << name_of(dtype);
    bench_every(cases, 2, [&](const OpCase& c, const OpResult& result) {
      EXPECT_EQ(result.wrong.first, "") << c.key();
      for (const auto& ranks : result.seconds)
        for (const double seconds : ranks) EXPECT_GT(seconds, 0) << c.key();
    });
  }
  const auto on_gpu = real_cases(host, "local", {.dtype = DType::bfloat16}, DeviceKind::cuda);
  EXPECT_EQ(std::ranges::count(on_gpu, Op::gemm, &OpCase::op), 12);
}

TEST(OpCases, LayersOf16BitsAreMeasuredAsSuchOnAGpuAlone) {
  EXPECT_EQ(sizes_for(DType::bfloat16, DeviceKind::cuda).dtype, DType::bfloat16);
  EXPECT_EQ(sizes_for(DType::bfloat16, DeviceKind::cpu).dtype, DType::float32);
  EXPECT_EQ(sizes_for(DType::float64, DeviceKind::cpu).dtype, DType::float64);
}

}  // namespace
}  // namespace moe::measure
