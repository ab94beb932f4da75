// Profiles that are named by a GPU, a size and a network.
#include "moe/prices/composed_profile.h"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>

#include "moe/base/check.h"
#include "moe/prices/row_finder.h"
#include "moe/shape/groups.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"
#include "tests/prices/profile_parts.h"

namespace moe {
namespace {

constexpr double kRate = 50e9;  // B/s of 400 Gbit/s

const CommRow* row_of(const Profile& profile, Op op, Network network, int ranks, int ranks_per_node = 0) {
  for (const CommRow& row : profile.comm)
    if (row.op == op && row.network == network && row.ranks == ranks && row.ranks_per_node == ranks_per_node)
      return &row;
  return nullptr;
}

double inter_s(const Profile& profile, Op op, int ranks, int ranks_per_node, double bytes) {
  const CommRow* row = row_of(profile, op, Network::inter, ranks, ranks_per_node);
  return row == nullptr ? -1 : row->alpha_s + bytes * row->beta_s_per_byte;
}

// The preset of the same hardware, whose rows a script makes of the published figures.
TEST(ComposedProfile, EightNodesCostWhatThePresetSays) {
  const Profile composed = find_profile("h100-8x8-ib-400"), preset = find_profile("h100-8-nodes");
  EXPECT_EQ(composed.name, "h100-8x8-ib-400");
  EXPECT_EQ(std::tie(composed.nodes, composed.ranks_per_node, composed.memory_bytes),
            std::tie(preset.nodes, preset.ranks_per_node, preset.memory_bytes));
  int compared = 0;
  for (const CommRow& theirs : preset.comm) {
    const CommRow* ours = row_of(composed, theirs.op, theirs.network, theirs.ranks, theirs.ranks_per_node);
    ASSERT_NE(ours, nullptr) << row_name(theirs);
    for (const double bytes : {64e3, 1e6, 64e6})
      EXPECT_NEAR((ours->alpha_s + bytes * ours->beta_s_per_byte) / (theirs.alpha_s + bytes * theirs.beta_s_per_byte),
                  1, 1e-8)
          << row_name(theirs);
    EXPECT_EQ(ours->points, theirs.points) << row_name(theirs);
    EXPECT_EQ(ours->verdict.origin,
              theirs.network == Network::inter ? "modelled at the full 50 GB/s a GPU (ib-400)" : "");
    ++compared;
  }
  EXPECT_EQ(compared, 28);
  ASSERT_EQ(composed.compute.size(), preset.compute.size());
  for (size_t i = 0; i < preset.compute.size(); ++i)
    EXPECT_EQ(composed.compute[i].beta_s_per_flop, preset.compute[i].beta_s_per_flop);
  EXPECT_EQ(composed.gpu->gemm_share, preset.gpu->gemm_share);
}

// Seconds a byte by hand: (nodes - 1) / nodes of an AlltoAll leave the node, twice that of a ring.
TEST(ComposedProfile, RowsBetweenNodesAreTheLinks) {
  const Profile four = find_profile("h100-4x8-ib-400");
  EXPECT_DOUBLE_EQ(inter_s(four, Op::sendrecv, 2, 0, 1e9), 1e9 / kRate);
  EXPECT_DOUBLE_EQ(inter_s(four, Op::alltoall, 32, 8, 1e9), 3.0 / 4 * 1e9 / kRate);
  EXPECT_DOUBLE_EQ(inter_s(four, Op::alltoall, 16, 8, 1e9), 1.0 / 2 * 1e9 / kRate);
  EXPECT_DOUBLE_EQ(inter_s(four, Op::alltoall, 4, 1, 1e9), 3.0 / 4 * 1e9 / kRate) << "one a node";
  EXPECT_DOUBLE_EQ(inter_s(four, Op::alltoall, 8, 2, 1e9), 3.0 / 4 * 1e9 / kRate) << "two a node";
  EXPECT_DOUBLE_EQ(inter_s(four, Op::allreduce, 4, 1, 1e9), 1.5 * 1e9 / kRate);
  EXPECT_DOUBLE_EQ(inter_s(four, Op::allreduce, 2, 1, 1e9), 1e9 / kRate);
  // Four nodes, of each half the bytes over each of two ranks' links, beside what is summed and gathered in the node.
  const CommRow &scatter = *row_of(four, Op::reducescatter, Network::intra, 2),
                &gather = *row_of(four, Op::allgather, Network::intra, 2);
  EXPECT_DOUBLE_EQ(
      inter_s(four, Op::allreduce, 8, 2, 1e9),
      scatter.alpha_s + gather.alpha_s + 1e9 * (scatter.beta_s_per_byte + gather.beta_s_per_byte + 1.5 / 2 / kRate));
  EXPECT_EQ(row_of(four, Op::alltoall, Network::inter, 64), nullptr);

  // Other networks, GPUs and sizes.
  for (const auto& [name, rate] :
       {std::pair{"h100-4x8-roce-200", 25e9}, {"a100-4x4-eth-100", 12.5e9}, {"b200-4x8-ib-800", 100e9}})
    EXPECT_DOUBLE_EQ(inter_s(find_profile(name), Op::alltoall, 4, 1, 1e9), 0.75e9 / rate) << name;
  EXPECT_DOUBLE_EQ(inter_s(find_profile("h100-3x1-ib-400"), Op::allreduce, 3, 1, 1e9), 4.0 / 3 * 1e9 / kRate);
  const Profile h800 = find_profile("h800-2x8-ib-400");  // 160 GB/s a GPU in the node
  EXPECT_GE(row_of(h800, Op::alltoall, Network::intra, 8)->points.back()[1], 7.0 / 8 * 512 * kMiB / 160e9);
  EXPECT_EQ(find_profile("h100-65536x8-ib-400").nodes, 65536);
}

// Lower bounds of a group's collectives, from the list of its ranks: in an AlltoAll, each rank sends the parts of the
// ranks on other nodes over its own link; in an AllReduce, each node sends 2 (n - 1) / n of the bytes over the links of
// its ranks, for n nodes.
double alltoall_bound_s(const std::map<int, int>& ranks_on, int ranks, double bytes) {
  double bound_s = 0;
  for (const auto& [node, on_node] : ranks_on) bound_s = std::max(bound_s, (ranks - on_node) * bytes / ranks / kRate);
  return bound_s;
}
double allreduce_bound_s(const std::map<int, int>& ranks_on, double bytes) {
  const auto nodes = static_cast<double>(ranks_on.size());
  double bound_s = 0;
  for (const auto& [node, on_node] : ranks_on)
    bound_s = std::max(bound_s, 2 * (nodes - 1) / nodes * bytes / on_node / kRate);
  return bound_s;
}

TEST(ComposedProfile, NoCollectiveIsFasterThanItsRanksLinks) {
  int compared = 0, tight = 0;
  for (const int nodes : {2, 3, 4, 5, 8, 15, 16, 17, 24})
    for (const int ranks_per_node : {1, 2, 4, 8}) {
      const Profile cluster = find_profile(fmt::format("h100-{}x{}-ib-400", nodes, ranks_per_node));
      const int all = nodes * ranks_per_node;
      for (int mp = 1; mp <= all; ++mp)
        for (int ep = 1; ep <= all; ++ep) {
          if (all % mp != 0 || all % ep != 0) continue;
          const LayerCase shape = complete(
              {.batch = 1, .seq = all, .model_dim = all, .hidden = all, .heads = all, .experts = all},
              {.nodes = nodes, .ranks_per_node = ranks_per_node, .mp = mp, .ep = ep, .esp = 1}, Rounding::ragged);
          const RowFinder find(cluster, shape, {});
          const Groups groups = groups_of(shape.parallel);
          for (const GroupKind kind : {GroupKind::mp, GroupKind::dp, GroupKind::ep, GroupKind::edp}) {
            const Group& group = groups[kind];
            if (group.network != Network::inter) continue;
            const CommRow *exchange = find.comm_row(Op::alltoall, group), *sum = find.comm_row(Op::allreduce, group);
            ASSERT_NE(exchange, nullptr) << cluster.name << " " << name_of(kind) << " of " << group.size;
            ASSERT_NE(sum, nullptr) << cluster.name << " " << name_of(kind) << " of " << group.size;
            for (int rank = 0; rank < all; ++rank) {
              std::map<int, int> ranks_on;
              for (const int member : members(shape.parallel, kind, rank)) ++ranks_on[member / ranks_per_node];
              if (ranks_on.size() == 1) continue;
              const double bound_s = alltoall_bound_s(ranks_on, group.size, 1e9);
              ASSERT_GE(1e9 * exchange->beta_s_per_byte, bound_s * (1 - 1e-12)) << cluster.name << " " << group.size;
              ASSERT_GE(1e9 * sum->beta_s_per_byte, allreduce_bound_s(ranks_on, 1e9) * (1 - 1e-12))
                  << cluster.name << " " << group.size;
              tight += 1e9 * exchange->beta_s_per_byte < bound_s * (1 + 1e-12);
              ++compared;
            }
          }
        }
    }
  EXPECT_GT(compared, 10000);
  EXPECT_GT(tight, compared / 2);
}

TEST(ComposedProfile, OtherNodesAreComposedAnew) {
  EXPECT_EQ(text_of(find_profile("h100-4x8-ib-400", 64)), text_of(find_profile("h100-64x8-ib-400")));
  EXPECT_EQ(text_of(find_profile("h100-4x8-ib-400", 4)), text_of(find_profile("h100-4x8-ib-400")));
  const Profile preset = find_profile("h100-8-nodes", 64);
  EXPECT_EQ(preset.nodes, 64);
  EXPECT_EQ(preset.name, "h100-8-nodes");
}

TEST(ComposedProfile, OneNodeNeedsNoNetwork) {
  const Profile one = find_profile("h100-1x8"), preset = find_profile("h100-8");
  EXPECT_EQ(one.comm.size(), preset.comm.size());
  EXPECT_EQ(text_of_origins(one), "");
  for (const CommRow& row : find_profile("h100-1x4").comm) EXPECT_LE(row.ranks, 4) << row_name(row);
}

TEST(ComposedProfile, FilesAndPresetsComeFirst) {
  const Scratch scratch;
  Profile own = small_profile();
  own.name = "mine-4x8";
  own.source = "made up";
  EXPECT_EQ(find_profile(scratch.write("mine-4x8.toml", text_of(own))).nodes, 2);
  EXPECT_FALSE(composed_profile("h100-8"));
  EXPECT_FALSE(composed_profile("testbed-b"));
  EXPECT_FALSE(composed_profile("4x8"));
  EXPECT_FALSE(composed_profile("h100-x"));
}

TEST(ComposedProfile, SurvivesItsFile) {
  const Scratch scratch;
  const Profile composed = find_profile("h200-4x8-ib-400");
  const Profile read = read_profile(scratch.write("again.toml", text_of(composed)));
  EXPECT_EQ(text_of(read), text_of(composed));
  EXPECT_EQ(text_of_origins(read), text_of_origins(composed));
}

TEST(ComposedProfile, WhatIsWrongIsNamed) {
  const auto said = [](const char* name) { return error_of<BadInput>([&] { find_profile(name); }); };
  const std::string form = "expected GPU-NODESxGPUS-NETWORK, as h100-4x8-ib-400, ";
  EXPECT_EQ(said("h300-4x8-ib-400"), "cluster: found 'h300-4x8-ib-400', " + form +
                                         "of a GPU of: a100, b200, h100, h200, h800; did you mean 'h100', 'h200' or "
                                         "'h800'?");
  for (const char* size : {"4x", "x8", "0x8", "4x0", "4x9999999", "4x16", "4x3", "99999999999999999999x8", "65537x8"})
    EXPECT_EQ(said(("h100-" + std::string(size) + "-ib-400").c_str()),
              "cluster: found 'h100-" + std::string(size) + "-ib-400', " + form +
                  "of 1 to 65536 nodes and 8 GPUs a node or a half, a fourth, ...");
  for (const char* network :
       {"", "-", "-ib", "-ib-", "-ib-0", "-ib-4e2", "-ib-400-x", "-nvl-400", "-ib-100001", "-400"})
    EXPECT_EQ(said(("h100-4x8" + std::string(network)).c_str()),
              "cluster: found 'h100-4x8" + std::string(network) + "', " + form +
                  "with a network of ib|roce|eth and Gbit/s a GPU (1 to 100000) behind the size");
}

}  // namespace
}  // namespace moe
