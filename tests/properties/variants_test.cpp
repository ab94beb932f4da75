// Decisions beside degrees and splits: experts a device (Lina section 4.2), MoNTA's number of chunks, the degree that a
// micro-op's size gives, and what a schedule that chooses reports and promises.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/plan/memory.h"
#include "moe/search/layer_search.h"
#include "moe/search/model_search.h"
#include "tests/properties/cases.h"

namespace moe {
namespace {

using conformance::full_layer;
using random_layer::RandomLayer;

double draw(uint64_t seed, uint64_t index, double least, double decades) {
  return least * std::pow(10, decades * random_uniform(seed, 71, index));
}

// Eight nodes of one rank, and an AlltoAll row for every size of group that packing can make, save where `gap` says so.
RandomLayer packable(uint64_t seed, int missing) {
  RandomLayer layer;
  LayerShape shape{.batch = 2, .seq = 48, .model_dim = 16, .hidden = 64, .heads = 8, .experts = 16};
  layer.shape = complete(shape, {.nodes = 8, .ranks_per_node = 1, .ep = 8, .esp = 1}, Rounding::ragged);
  layer.profile.name = "packable";
  const double bytes = moe_volumes(layer.shape, capacity_exact(layer.shape)).alltoall_bytes;
  for (const int ranks : {2, 4, 8}) {
    CommRow row;
    row.op = Op::alltoall;
    row.ranks = ranks;
    row.alpha_s = draw(seed, static_cast<uint64_t>(ranks), 1e-6, 2);
    row.beta_s_per_byte = draw(seed, 10 + static_cast<uint64_t>(ranks), 1e-5, 2) / bytes;
    if (ranks != missing) layer.profile.comm.push_back(row);
    row.op = Op::allreduce;
    layer.profile.comm.push_back(row);
  }
  ComputeRow gemm;
  gemm.op = Op::gemm;
  gemm.alpha_s = draw(seed, 30, 1e-7, 2);
  gemm.beta_s_per_flop = draw(seed, 31, 1e-5, 2) / moe_volumes(layer.shape, capacity_exact(layer.shape)).expert_flops;
  layer.profile.compute.push_back(gemm);
  layer.text = fmt::format("seed {}, no row for {} ranks", seed, missing);
  return layer;
}

// p doubles while an expert's micro-op is shorter than an AlltoAll's over E / p ranks, as far as there are rows.
int packing_by_hand(const RandomLayer& layer, int degree, int missing) {
  const MoeVolumes whole = moe_volumes(layer.shape, static_cast<double>(capacity_rows(layer.shape)));
  const ComputeRow& gemm = layer.profile.compute[0];
  const double expert = 2 * gemm.alpha_s + whole.expert_flops / degree * gemm.beta_s_per_flop;
  int p = 1;
  for (; 8 / p > 1; p *= 2) {
    double alltoall = 0;
    for (const CommRow& row : layer.profile.comm)
      if (row.op == Op::alltoall && row.ranks == 8 / p)
        alltoall = row.alpha_s + whole.alltoall_bytes / degree * row.beta_s_per_byte;
    if (expert >= alltoall || 8 / (2 * p) == missing) break;
  }
  return p;
}

TEST(Packing, DoublesWhileTheExpertsMicroOpIsShorter) {
  LayerSearch search;
  std::map<int, int> found;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    const int missing = seed % 3 == 0 ? 4 : seed % 3 == 1 ? 2 : 0;
    const RandomLayer layer = packable(seed, missing);
    const LayerPricer pricer(layer.profile, layer.shape);
    const auto bytes = static_cast<int64_t>(draw(seed, 40, 2000, 1));
    const int64_t alltoall = capacity_rows(layer.shape) * 16 * 16 * 4;  // T_rank E M
    const int degree = static_cast<int>(std::clamp<int64_t>((alltoall + bytes - 1) / bytes, 1, pricer.rows()));
    const auto all = tune_packings(search.replay(find_schedule("lina-packed"), pricer), {.micro_op_bytes = bytes});
    const LayerResult& result = all.back();
    ASSERT_EQ(result.decision.degree_forward, degree) << layer.text;
    ASSERT_EQ(result.decision.packing, packing_by_hand(layer, degree, missing)) << layer.text;
    ASSERT_EQ(1 << (all.size() - 1), result.decision.packing) << layer.text;
    const Plan plan = build_plan(find_schedule("lina-packed"), layer.shape, result.decision);
    ASSERT_EQ(plan.shape.parallel.ep, 8 / result.decision.packing);
    ASSERT_EQ(plan.shape.parallel.edp, layer.shape.parallel.edp * result.decision.packing);
    // Lina itself on the packed groups is no slower: only the experts' gradients come on top.
    const LayerPricer packed(layer.profile, plan.shape);
    const LayerResult lina = search.tune(find_schedule("lina"), packed, {.micro_op_bytes = bytes});
    ASSERT_GE(result.total_s(), lina.total_s() * (1 - 1e-12)) << layer.text;
    ++found[result.decision.packing];
  }
  for (const auto& [packing, count] : found) fmt::print("{} x the experts a device: {} layers\n", packing, count);
  EXPECT_EQ(found.size(), 4u);
}

// The rule says how far packing may go, the replay and a rank's memory how far it does: what the replicas' gradients
// cost more than the AlltoAlls save is not taken.
TEST(Packing, IsTakenOnlyAsFarAsItPaysAndFits) {
  LayerSearch search;
  int less = 0, misfits = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    RandomLayer layer = packable(seed, 0);
    const LayerPricer pricer(layer.profile, layer.shape);
    const Schedule& schedule = find_schedule("lina-packed");
    const auto all = tune_packings(search.replay(schedule, pricer), {.micro_op_bytes = 2000});
    double best = all.front().total_s();
    for (const LayerResult& one : all) best = std::min(best, one.total_s());
    const LayerResult result = search.tune(schedule, pricer, {.micro_op_bytes = 2000});
    ASSERT_NEAR(result.total_s(), best, 1e-9 * best) << layer.text;
    less += result.decision.packing < all.back().decision.packing;
    if (result.decision.packing == 1) continue;
    const double capacity = layer_memory(layer.shape).total();  // which leaves nothing for more experts
    const DegreeChoice fitting{.micro_op_bytes = 2000, .fits = [capacity](const LayerCase& c, Flow flow) {
                                 return !memory_refusal(layer_memory(c, flow), capacity);
                               }};
    ASSERT_EQ(search.tune(schedule, pricer, fitting).decision.packing, 1) << layer.text;
    ++misfits;
    const ModelResult whole = ModelSearch().tune(schedule, pricer, {layer.shape, 2}, fitting);
    ASSERT_EQ(whole.plan.shape.parallel.ep, 8) << "two layers need more memory than one has, " << layer.text;
  }
  fmt::print("{} of 300 layers pack less than Lina's rule alone, {} would not fit\n", less, misfits);
  EXPECT_GT(less, 20);
  EXPECT_GT(misfits, 20);
}

// One layer by hand: what a replica's gradients cost is that their pieces, cut like the dense part's, follow the last
// expert on the lane that carries the AlltoAlls.
TEST(Packing, ReplicasGradientsAreCutAndFollowTheirExpert) {
  LayerShape shape{.batch = 4, .seq = 16, .model_dim = 16, .hidden = 32, .heads = 8, .experts = 8};
  const LayerCase layer = complete(shape, {.nodes = 8, .ranks_per_node = 1}, Rounding::ragged);
  Decision decision;
  decision.packing = 2;
  decision.micro_op_bytes = 1000;
  const Plan plan = build_plan(find_schedule("lina-packed"), layer, decision);
  // Two experts of two matrices, 16 x 32 float32 each: 2048 bytes, three pieces of 171, 171 and 170 elements.
  std::vector<int64_t> bytes;
  for (const Task& task : plan.tasks())
    if (task.kind == TaskKind::expert_gradient) {
      bytes.push_back(plan.slices.at(task.slice).bytes());
      EXPECT_EQ(plan.tasks().at(task.after.at(0)).kind, TaskKind::expert);
    }
  EXPECT_EQ(bytes, (std::vector<int64_t>{684, 684, 680, 684, 684, 680, 684, 684, 680, 684, 684, 680}));
}

TEST(MicroOpSize, IsTheBestOfThoseTriedAndGivesTheDegree) {
  LayerSearch search;
  LayerShape shape{.batch = 4, .seq = 1024, .model_dim = 4096, .hidden = 256, .heads = 8, .experts = 8};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    RandomLayer layer = packable(seed, 0);
    layer.shape = complete(shape, {.nodes = 8, .ranks_per_node = 1}, Rounding::ragged);
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const char* name : {"lina", "lina-partition"}) {
      const Schedule& schedule = find_schedule(name);
      const LayerResult tuned = search.tune(schedule, pricer, {.micro_op_bytes = 0});
      for (const int64_t megabytes : {1, 2, 5, 10, 20, 30, 50, 100}) {
        const LayerResult one = search.tune(schedule, pricer, {.micro_op_bytes = megabytes * 1'000'000});
        EXPECT_LE(tuned.total_s(), one.total_s() * (1 + 1e-9)) << name << " " << megabytes << " MB, seed " << seed;
        const double bytes = 4.0 * static_cast<double>(pricer.rows()) * 8 * 4096;
        EXPECT_EQ(one.decision.degree_forward,
                  std::min<double>(largest_degree(pricer), std::ceil(bytes / (1e6 * static_cast<double>(megabytes)))))
            << name;
      }
    }
  }
}

// MoNTA's Algorithms 1 and 2: N from 1 while I / (N t) and I / N stay above I_minimal; the least of O1, O2 and O3.
TEST(Monta, TriesChunksDownToTheSmallestWorthSending) {
  LayerSearch search;
  std::map<std::string_view, int> chosen;
  int limited = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    RandomLayer layer = full_layer(seed);
    const ParallelShape& p = layer.shape.parallel;
    if (p.mp != p.esp || p.mp == 1 || p.ep == 1) continue;
    for (CommRow& row : layer.profile.comm) row.alpha_s *= 0.02;  // so that chunks pay
    layer.profile.compute[1].alpha_s = 0;
    layer.profile.compute[1].beta_s_per_byte *= 0.05;
    layer.profile.task_overhead_s = 0;
    const LayerPricer pricer(layer.profile, layer.shape);
    const double rows = pricer.all_rows();
    const double share = moe_volumes(layer.shape, rows).alltoall_bytes;  // I / t
    const auto least = static_cast<int64_t>(share * random_uniform(seed, 72, 0));
    const LayerResult result = search.tune(find_schedule("monta"), pricer, {.min_chunk_bytes = least});
    double best = search.evaluate(find_schedule("monta-o1"), pricer, {}).total_s(), free = best;
    const int fewest = layer.shape.layer.shared_hidden > 0 ? 1 : 2;  // one chunk is O1, but for the shared expert
    for (int n = fewest; n <= std::min<int64_t>(kMaxDegree, pricer.rows()); ++n)
      for (const char* name : {"monta-o2", "monta-o3"}) {
        const double seconds = search.evaluate(find_schedule(name), pricer, {n, n}).total_s();
        if (share / n >= static_cast<double>(least)) best = std::min(best, seconds);
        free = std::min(free, seconds);
      }
    ASSERT_NEAR(result.total_s(), best, 1e-9 * best) << least << " of " << share << " bytes, " << layer.text;
    ++chosen[result.decision.variant->name];
    limited += best > free * (1 + 1e-9);
  }
  for (const auto& [name, count] : chosen) fmt::print("monta takes {} on {} layers\n", name, count);
  EXPECT_EQ(chosen.size(), 3u);
  EXPECT_GT(limited, 10) << "the limit rules a faster choice out somewhere";
}

// Parm's proof (section IV-B, Eqs. 6 and 10): S1 and S2 are never slower than the baseline, where an AllGather moves a
// byte no slower than an AlltoAll (Eq. 9), start-up times and copies cost nothing, and no expert drops tokens (k f >=
// 1).
TEST(Parm, IsNeverSlowerThanTheBaselineWhereItsAssumptionsHold) {
  LayerSearch search;
  int compared = 0, faster = 0;
  double least = 1e300;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    RandomLayer layer = full_layer(seed);
    if (layer.shape.parallel.ep == 1) continue;
    layer.shape.layer.shared_hidden = 0;  // the baseline's whole tokens spare it an AllGather
    Profile& profile = layer.profile;
    profile.task_overhead_s = 0;
    profile.modules.clear();
    std::erase_if(profile.compute, [](const ComputeRow& row) { return row.op == Op::copy; });
    std::erase_if(profile.comm, [](const CommRow& row) { return row.op == Op::a2a_ep_esp || row.op == Op::saa; });
    double alltoall = 1e300;
    for (const CommRow& row : profile.comm)
      if (row.op == Op::alltoall) alltoall = std::min(alltoall, row.beta_s_per_byte);
    for (uint64_t i = 0; CommRow & row : profile.comm) {
      row.alpha_s = 0;
      if (row.op == Op::allgather) row.beta_s_per_byte = alltoall * random_uniform(seed, 73, i++);
    }
    const LayerPricer pricer(profile, layer.shape);
    const double baseline = search.tune(find_schedule("ds-moe-replicated"), pricer).total_s();
    for (const char* name : {"parm-s1", "parm-s2-aas", "parm-s2", "parm"}) {
      const double seconds = search.tune(find_schedule(name), pricer).total_s();
      ASSERT_LE(seconds, baseline * (1 + 1e-9)) << name << ", " << layer.text;
      faster += seconds < baseline * (1 - 1e-6);
      least = std::min(least, baseline / seconds);
      ++compared;
    }
  }
  fmt::print("{} of {} plans faster than the baseline, at least {:.4f} x\n", faster, compared, least);
  EXPECT_GT(compared, 2000);
  EXPECT_GT(faster, compared / 2);
}

TEST(Choosers, PlanAndPriceWhatTheyChose) {
  LayerSearch search;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const RandomLayer layer = full_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const char* name : {"parm", "monta"}) {
      const Schedule& schedule = find_schedule(name);
      if (schedule.flow == Flow::dropped && layer.shape.parallel.mp != layer.shape.parallel.esp) {
        EXPECT_THROW(search.tune(schedule, pricer), Unsupported) << layer.text;
        continue;
      }
      const LayerResult result = search.tune(schedule, pricer);
      ASSERT_EQ(result.schedule, name);
      ASSERT_NE(result.decision.variant, nullptr) << layer.text;
      const Plan plan = build_plan(schedule, layer.shape, result.decision);
      EXPECT_EQ(plan.schedule, name);
      EXPECT_NEAR(simulate(*plan.structure, price(pricer, plan)).makespan_s, result.total_s(), 1e-9 * result.total_s());
      EXPECT_THROW(search.evaluate(schedule, pricer, {}), BadInput) << "no choice";
      EXPECT_THROW(build_plan(schedule, layer.shape, {}), BadInput) << "no choice";
    }
  }
}

}  // namespace
}  // namespace moe
