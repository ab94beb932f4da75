// Prices by measured curves: their own, and those that are derived from them.
#include <gtest/gtest.h>

#include "moe/prices/pricer.h"
#include "tests/prices/profile_parts.h"

namespace moe {
namespace {

TEST(PriceCurves, MeasuredCurvesGoOnWithTheirOutermostPieces) {
  Profile profile = small_profile();
  row_of(profile, Op::alltoall).points = {{1024, 1.0}, {2048, 3.0}, {8192, 4.0}};
  row_of(profile, Op::allreduce).points = {{100, 1.0}, {300, 2.0}};
  const LayerCase shape = small_case();
  const LayerPricer pricer(profile, shape);
  const double row = 4 * 32 * 4;  // E M elements of float32: 512 bytes
  const auto seconds = [&](double bytes) {
    return pricer.chunk_seconds(TaskKind::dispatch, Phase::forward, bytes / row);
  };
  EXPECT_DOUBLE_EQ(seconds(1024), 1.0);
  EXPECT_DOUBLE_EQ(seconds(1536), 2.0);
  EXPECT_DOUBLE_EQ(seconds(2048), 3.0);
  EXPECT_DOUBLE_EQ(seconds(5120), 3.5);
  EXPECT_DOUBLE_EQ(seconds(8192), 4.0);
  EXPECT_DOUBLE_EQ(seconds(14336), 5.0) << "6144 bytes a second";
  EXPECT_DOUBLE_EQ(seconds(256), 0.25) << "the first piece would begin at -1 s";
  EXPECT_DOUBLE_EQ(pricer.gradient_seconds(40), 0.7);
  EXPECT_DOUBLE_EQ(pricer.gradient_seconds(200), 1.5);
  EXPECT_DOUBLE_EQ(pricer.gradient_seconds(400), 2.5);
  EXPECT_TRUE(pricer.gradient_breakpoints().empty()) << "two points are a line";
  row_of(profile, Op::allreduce).points = {{100, 1.0}, {300, 2.0}, {700, 6.0}};
  EXPECT_EQ(LayerPricer(profile, shape).gradient_breakpoints(), (std::vector<double>{300}));
  row_of(profile, Op::allreduce).points = {{100, 4.0}, {300, 2.0}};
  const LayerPricer falling(profile, shape);
  EXPECT_DOUBLE_EQ(falling.gradient_seconds(50), 4.5);
  EXPECT_DOUBLE_EQ(falling.gradient_seconds(400), 2.0) << "level";
}

// A curve of three pieces: cut into parts of at most so much, work takes no less than this, and some cut takes it.
TEST(PriceCurves, PartsOfACurveTakeAtLeastTheirCheapestRate) {
  CommRow row;
  row.points = {{100, 2.0}, {200, 2.5}, {400, 8.0}};
  const PriceCurve curve = price_curve(row);
  EXPECT_DOUBLE_EQ(curve.seconds_in_parts(800, 800, 0.5).all, 4 * 3.0) << "parts of 200";
  EXPECT_DOUBLE_EQ(curve.seconds_in_parts(800, 100, 0.5).all, 8 * 2.5) << "parts of 100";
  EXPECT_DOUBLE_EQ(curve.seconds_in_parts(800, 150, 0.5).all, 800 / 150.0 * 2.75);
  EXPECT_DOUBLE_EQ(curve.seconds_in_parts(800, 800, 0.5).one, 1.5 + 0.5) << "of nothing";
}

// EP inside a node and ESP between nodes: what is exchanged over both crosses the slower network.
TEST(PriceCurves, ExchangesOverTwoNetworksArePricedByTheSlowerOne) {
  Profile profile = small_profile();
  CommRow inside{.op = Op::alltoall, .network = Network::intra, .ranks = 2, .alpha_s = 1e-6, .beta_s_per_byte = 1e-12};
  CommRow all = row_of(profile, Op::alltoall);
  all.ranks = 4;
  all.alpha_s = 3e-4;
  profile.comm.insert(profile.comm.end(), {inside, all});
  const ParallelShape across{.nodes = 2, .ranks_per_node = 2, .mp = 1, .ep = 2, .esp = 2, .ep_inside = true};
  const LayerCase shape = small_case(across);
  const LayerPricer pricer(profile, shape);
  EXPECT_DOUBLE_EQ(pricer.collective(Op::alltoall, GroupKind::ep, 1e6).value().seconds(1e6), 1e-6 + 1e-6);
  EXPECT_DOUBLE_EQ(pricer.collective(Op::alltoall, GroupKind::ep_esp, 1e6).value().seconds(1e6), 3e-4 + 1e-3);
}

// Each derived price is a sum of measured curves, beyond their ends too.
TEST(PriceCurves, DerivedPricesKeepTheCurvesOfTheirRows) {
  Profile profile = small_profile();
  row_of(profile, Op::reducescatter).points = {{1000, 1.0}, {3000, 2.0}};
  row_of(profile, Op::allgather).points = {{2000, 0.5}, {4000, 2.5}, {5000, 9.0}};
  row_of(profile, Op::allreduce).points = {{1000, 1.0}, {2000, 2.0}, {4000, 10.0}};
  row_of(profile, Op::alltoall).points = {{1000, 4.0}, {2000, 5.0}};
  const LayerCase nodes = small_case(), one_node = small_case({.nodes = 1, .ranks_per_node = 2, .mp = 1, .esp = 2});
  const LayerPricer pricer(profile, nodes), intra(profile, one_node);
  const auto seconds = [&](const LayerPricer& of, Op op, GroupKind kind, double bytes) {
    return of.collective(op, kind, bytes).value().seconds(bytes);
  };
  EXPECT_DOUBLE_EQ(seconds(intra, Op::allreduce, GroupKind::dp, 3500), 2.25 + 2.0) << "both halves";
  EXPECT_DOUBLE_EQ(intra.gradient_seconds(3500), 2.25 + 2.0);
  EXPECT_DOUBLE_EQ(intra.gradient_seconds(6000), 3.5 + 15.5);
  EXPECT_DOUBLE_EQ(intra.gradient_seconds(1000), 1.0 + 0.25) << "an AllGather of 1000 bytes would take -0.5 s";
  EXPECT_EQ(intra.gradient_breakpoints(), (std::vector<double>{2000, 4000}));
  EXPECT_DOUBLE_EQ(seconds(pricer, Op::allgather, GroupKind::dp, 3000), 6.0 / 2) << "half an AllReduce";
  EXPECT_DOUBLE_EQ(seconds(pricer, Op::allgather, GroupKind::dp, 5000), 14.0 / 2);
  EXPECT_DOUBLE_EQ(seconds(pricer, Op::allgather, GroupKind::dp, 500), 0.5 / 2);
  EXPECT_DOUBLE_EQ(seconds(pricer, Op::reducescatter, GroupKind::dp, 3000), 6.0 / 2) << "the other half";
  EXPECT_DOUBLE_EQ(seconds(pricer, Op::alltoall, GroupKind::ep_esp, 1500), 4.5) << "as over EP";
  LayerCase shares = nodes;
  shares.parallel.zero = 1;
  const double weights = static_cast<double>(gradient_bytes(shares));
  EXPECT_DOUBLE_EQ(LayerPricer(profile, shares).dense_seconds(TaskKind::weights, Phase::backward),
                   (10.0 + (weights - 4000) * 4e-3) / 2);
  const double combined = whole_work(TaskKind::combine, Phase::forward, nodes, Flow::fused).bytes;
  CommRow saa{.op = Op::saa, .ranks = 4};
  saa.points = {{combined / 4, 1.0}, {combined / 2, 3.0}};
  profile.comm.push_back(saa);
  EXPECT_DOUBLE_EQ(LayerPricer(profile, nodes).saa_seconds().value(), 7.0);
}

}  // namespace
}  // namespace moe
