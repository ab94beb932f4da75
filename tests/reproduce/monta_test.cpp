// MoNTA's closed forms against a pipeline that is stepped through chunk by chunk, and against the planner's replay of
// the same strategies.
#include <gtest/gtest.h>
#include <random>

#include "moe/base/check.h"
#include "moe/search/degrees.h"
#include "tuner/reproduce/monta_model.h"
#include "tuner/reproduce/printed.h"

namespace moe {
namespace {

// Three machines in a row, one job a chunk: AlltoAll, AllGather, copy; O2 runs AllGather and copy on one machine.
double stepped(MontaStrategy s, const MontaTimes& t, int chunks) {
  double alltoall_free = 0, gather_free = 0, copy_free = 0;
  for (int c = 0; c < chunks; ++c) {
    alltoall_free += t.alltoall;
    gather_free = std::max(gather_free, alltoall_free) + t.allgather;
    if (s == MontaStrategy::o2)
      copy_free = gather_free += t.copy;
    else
      copy_free = std::max(copy_free, gather_free) + t.copy;
  }
  return copy_free;
}

TEST(Monta, ClosedFormsAreThePipelines) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> seconds(0.1, 2);
  for (int i = 0; i < 2000; ++i) {
    MontaTimes t{seconds(generator), seconds(generator), 0};
    const int chunks = 1 + static_cast<int>(generator() % 8);
    // O3's form holds where a copy is no longer than what it runs beside.
    t.copy = std::min(t.alltoall, t.allgather) * std::uniform_real_distribution<double>(0, 1)(generator);
    for (const MontaStrategy s : {MontaStrategy::o2, MontaStrategy::o3})
      EXPECT_NEAR(monta_seconds(s, t, chunks), stepped(s, t, chunks), 1e-9) << name_of(s) << " " << chunks;
    EXPECT_EQ(monta_seconds(MontaStrategy::o1, t, 1), t.alltoall + t.allgather);
  }
}

// The ratios on Table 8's own baseline: 0.355, 0.306, 0.284 by hand from its latencies.
TEST(Monta, RatiosOnItsOwnBaseline) {
  EXPECT_NEAR((1.012 + 1.443) / 6.909, 0.355, 5e-4);
  EXPECT_NEAR(monta_seconds(MontaStrategy::o2, {0.374, 0.385, 0.05}, 4) / 6.909, 0.306, 5e-4);
  EXPECT_NEAR(monta_seconds(MontaStrategy::o3, {0.374, 0.385, 0.05}, 4) / 6.909, 0.284, 5e-4);
}

TEST(Monta, LinesGoThroughTable8) {
  const MontaPlatform p = table8_platform();
  EXPECT_NEAR(p.alltoall.seconds(256e6), 6.909e-3, 2e-6);
  EXPECT_NEAR(p.alltoall.seconds(8e6), 0.374e-3, 1e-6);
  EXPECT_NEAR(p.allgather.seconds(256e6), 1.443e-3, 1e-6);
  EXPECT_NEAR(p.allgather.seconds(64e6), 0.385e-3, 1e-6);
  EXPECT_NEAR(p.seconds(MontaStrategy::o2, 256e6, 4), 2.114e-3, 5e-6);
  EXPECT_NEAR(monta_bytes(256), 32 * 256e6, 1);
}

// The schedules monta-o1 to -o3 on the same lines: a chain there, one back, the expert between them.
TEST(Monta, SchedulesReplayTheSameChains) {
  const MontaPlatform p = table8_platform();
  Profile profile;
  profile.name = "a800";
  profile.nodes = 2;
  profile.ranks_per_node = 8;
  const auto row = [&](const std::string& op, Network network, int ranks, const TimeLine& line) {
    CommRow r;
    r.op = op, r.network = network, r.ranks = ranks, r.alpha_s = line.alpha_s, r.beta_s_per_byte = line.beta_s_per_byte;
    profile.comm.push_back(r);
  };
  row("alltoall", Network::inter, 2, p.alltoall);
  row("allgather", Network::intra, 8, p.allgather);
  row("reducescatter", Network::intra, 8, p.allgather);
  row("allreduce", Network::intra, 8, p.allgather);
  row("allreduce", Network::inter, 2, p.alltoall);
  ComputeRow copy, gemm;
  copy.op = "copy", copy.beta_s_per_byte = 1 / p.copy_bytes_per_s;
  gemm.op = "gemm", gemm.beta_s_per_flop = 1e-15;
  profile.compute = {copy, gemm};
  for (const int thousands : {8, 64}) {
    LayerShape layer;
    layer.batch = 1, layer.seq = 1024 * thousands, layer.model_dim = 8192, layer.hidden = 8192, layer.heads = 64;
    layer.experts = 2;
    const double elements = static_cast<double>(layer.seq * layer.model_dim) * 4;  // float32
    layer.top_k = 1;
    layer.capacity_factor = monta_bytes(thousands) / elements;
    ParallelShape shape;
    shape.nodes = 2, shape.ranks_per_node = 8;
    const Case c = complete(layer, shape, Rounding::exact);
    const LayerPricer pricer(profile, c);
    LayerSearch search;
    const double expert =
        pricer.chunk_seconds(TaskKind::expert, Phase::forward, capacity_exact(c), Flow::dropped) +
        pricer.chunk_seconds(TaskKind::reducescatter, Phase::forward, capacity_exact(c), Flow::dropped);
    for (const auto& [name, strategy] :
         {std::pair{"monta-o1", MontaStrategy::o1}, {"monta-o2", MontaStrategy::o2}, {"monta-o3", MontaStrategy::o3}}) {
      const int chunks = strategy == MontaStrategy::o1 ? 1 : kMontaChunks;
      const LayerResult r = search.tune(find_schedule(name), pricer, {chunks, chunks});
      const double closed = 2 * p.seconds(strategy, monta_bytes(thousands), kMontaChunks) + expert;
      EXPECT_NEAR(r.moe_forward_s / closed, 1, 1e-9) << name << " " << thousands << "K";
    }
  }
}

}  // namespace
}  // namespace moe
