// Layer and grid files, and the grids that come with the program.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/shape/grid.h"
#include "moe/shape/layer_file.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

struct Table4 {
  std::string_view name, cluster;
  std::set<int64_t> seq;
  int64_t top_k;
  int nodes, ranks_per_node;
};

class FsmoeGrid : public testing::TestWithParam<Table4> {};

TEST_P(FsmoeGrid, HasTable4sLayers) {
  const Table4& expected = GetParam();
  const Grid grid = find_grid(std::string(expected.name));
  EXPECT_EQ(grid.name, expected.name);
  EXPECT_EQ(grid.cluster, expected.cluster);
  EXPECT_EQ(grid.rounding, Rounding::exact);
  ASSERT_EQ(grid.layers.size(), 1458u);
  std::set<std::string> names;
  std::set<int64_t> batch, heads, seq, model_dim, scale;
  std::set<std::optional<double>> factor;
  std::set<Ffn> ffn;
  for (const auto& [name, shape, parallel] : grid.layers) {
    names.insert(name);
    batch.insert(shape.batch);
    heads.insert(shape.heads);
    seq.insert(shape.seq);
    model_dim.insert(shape.model_dim);
    ASSERT_EQ(shape.hidden % shape.model_dim, 0);
    scale.insert(shape.hidden / shape.model_dim);
    factor.insert(shape.capacity_factor);
    ffn.insert(shape.ffn);
    ASSERT_EQ(shape.top_k, expected.top_k);
    ASSERT_EQ(shape.experts, 0) << "one a node";
    ASSERT_EQ(shape.dtype, DType::float32);
    ASSERT_FALSE(parallel) << "the cluster's own";
  }
  EXPECT_EQ(names.size(), 1458u);
  EXPECT_EQ(batch, (std::set<int64_t>{1, 2, 4}));
  EXPECT_EQ(heads, (std::set<int64_t>{8, 16, 32}));
  EXPECT_EQ(seq, expected.seq);
  EXPECT_EQ(model_dim, (std::set<int64_t>{1024, 2048, 4096}));
  EXPECT_EQ(scale, (std::set<int64_t>{2, 3, 4}));
  EXPECT_EQ(factor, (std::set<std::optional<double>>{std::nullopt, 1.2, 2.4}));
  EXPECT_EQ(ffn, (std::set<Ffn>{Ffn::gpt, Ffn::mixtral}));
}

TEST_P(FsmoeGrid, FitsItsCluster) {
  const Table4& expected = GetParam();
  ParallelShape cluster;
  cluster.nodes = expected.nodes;
  cluster.ranks_per_node = expected.ranks_per_node;
  for (const auto& layer : find_grid(std::string(expected.name)).layers) {
    const LayerCase whole = complete(layer.shape, cluster, Rounding::exact);
    ASSERT_EQ(whole.parallel.mp, expected.ranks_per_node) << layer.name;
    ASSERT_EQ(whole.parallel.esp, expected.ranks_per_node);
    ASSERT_EQ(whole.parallel.ep, expected.nodes);
    ASSERT_EQ(whole.layer.experts, expected.nodes);
  }
}

TEST(GridSample, HasLayersOfItsGridAndEveryCandidateEquallyOften) {
  for (const std::string bed : {"a", "b"}) {
    const Grid grid = find_grid("fsmoe-30-" + bed), whole = find_grid("fsmoe-" + bed);
    EXPECT_EQ(grid.name, "fsmoe-30-" + bed);
    EXPECT_EQ(grid.sample_of, whole.name);
    EXPECT_EQ(grid.cluster, whole.cluster);
    EXPECT_EQ(grid.rounding, whole.rounding);
    ASSERT_EQ(grid.layers.size(), 30U);
    std::map<std::string, int> uses;
    for (const GridLayer& layer : grid.layers) {
      const LayerShape& l = layer.shape;
      for (const std::string& value :
           {fmt::format("B{}", l.batch), fmt::format("h{}", l.heads), fmt::format("L{}", l.seq),
            fmt::format("M{}", l.model_dim), fmt::format("scale {}", l.hidden / l.model_dim),
            fmt::format("f{}", l.capacity_factor.value_or(0))})
        ++uses[value];
      EXPECT_NE(std::ranges::find(whole.layers, layer.name, &GridLayer::name), whole.layers.end());
    }
    EXPECT_EQ(uses.size(), 18U);
    for (const auto& [value, count] : uses) EXPECT_EQ(count, 10) << value;
  }
}

TEST(GridSample, RefusesWhatItsGridDoesNotHave) {
  const Scratch scratch;
  const auto sample = [&](const std::string& rest) {
    return scratch.write("sample.toml", "schema = 1\nname = \"sample\"\n" + rest);
  };
  const std::string layer = "\"B1-h8-L256-M1024-H2048-f1.2-gpt\"", of = "of = \"fsmoe-b\"\n";
  EXPECT_EQ(read_grid(sample(of + "only = [" + layer + "]")).layers.size(), 1U);
  struct Case {
    std::string rest, expected;
  };
  for (const auto& [rest, expected] :
       {Case{of + "only = [\"B3\"]", "sample.toml:4: only: found 'B3', expected the name of a layer of fsmoe-b"},
        Case{of + "only = [1]", "only: found 1"}, Case{of + "only = [" + layer + ", " + layer + "]", "each layer once"},
        Case{of + "only = []", "only"}, Case{of, "only"}, Case{of + "cluster = \"testbed-b\"\n", "cluster"},
        Case{"of = \"fsmoe-30-b\"\nonly = [" + layer + "]", "itself a sample"},
        Case{"of = \"no-such\"\nonly = [" + layer + "]", "no-such"}}) {
    const std::string found = error_of<BadInput>([&] { read_grid(sample(rest)); });
    EXPECT_NE(found.find(expected), std::string::npos) << found;
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, FsmoeGrid,
                         testing::Values(Table4{"fsmoe-a", "testbed-a", {512, 1024, 2048}, 1, 6, 8},
                                         Table4{"fsmoe-a-k2", "testbed-a", {512, 1024, 2048}, 2, 6, 8},
                                         Table4{"fsmoe-b", "testbed-b", {256, 512, 1024}, 1, 8, 4},
                                         Table4{"fsmoe-b-k2", "testbed-b", {256, 512, 1024}, 2, 8, 4}),
                         [](const auto& row) {
                           std::string name(row.param.name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Grid, ComesInAFixedOrderUnderStableNames) {
  const Grid grid = find_grid("fsmoe-b");
  EXPECT_EQ(grid.layers[0].name, "B1-h8-L256-M1024-H2048-f1.2-gpt");
  EXPECT_EQ(grid.layers[1].name, "B1-h8-L256-M1024-H2048-f1.2-mixtral");
  EXPECT_EQ(grid.layers[2].name, "B1-h8-L256-M1024-H2048-f2.4-gpt");
  EXPECT_EQ(grid.layers[4].name, "B1-h8-L256-M1024-H2048-fnone-gpt");
  EXPECT_EQ(grid.layers[6].name, "B1-h8-L256-M1024-H3072-f1.2-gpt");
  EXPECT_EQ(grid.layers[18].name, "B1-h8-L256-M2048-H4096-f1.2-gpt");
  EXPECT_EQ(grid.layers[54].name, "B1-h8-L512-M1024-H2048-f1.2-gpt");
  EXPECT_EQ(grid.layers[162].name, "B1-h16-L256-M1024-H2048-f1.2-gpt");
  EXPECT_EQ(grid.layers[486].name, "B2-h8-L256-M1024-H2048-f1.2-gpt");
  EXPECT_EQ(grid.layers.back().name, "B4-h32-L1024-M4096-H16384-fnone-mixtral");
}

TEST(Grid, OfTheHostIsSmall) {
  const Grid grid = find_grid("host");
  EXPECT_EQ(grid.cluster, "host");
  EXPECT_EQ(grid.rounding, Rounding::ragged);
  EXPECT_EQ(grid.layers.size(), 8u);
  ParallelShape host;
  host.nodes = host.ranks_per_node = 2;
  for (const auto& layer : grid.layers) EXPECT_NO_THROW(complete(layer.shape, host, grid.rounding)) << layer.name;
}

TEST(Grid, EveryFileReads) {
  for (const auto& name : config_names("grids")) EXPECT_EQ(find_grid(name).name, name);
  EXPECT_TRUE(error_of<BadInput>([] { find_grid("fsmoe"); }).starts_with("grid: found 'fsmoe', expected a file or"));
}

TEST(Grid, TakesHiddenItselfFractionsAndSeveralK) {
  const Scratch scratch;
  const std::string path = scratch.write("mine.toml", R"(schema = 1
name = "mine"
source = "a test"
cluster = "testbed-b"
capacity_rounding = "ragged"
[layers]
batch = 1
heads = 32
seq = 512
model_dim = 4096
hidden_scale = 3.5
capacity_factor = "*"
ffn = "mixtral"
top_k = [1, 2]
experts = 16
dtype = "bfloat16"
)");
  const Grid grid = find_grid(path);
  ASSERT_EQ(grid.layers.size(), 2u);
  EXPECT_EQ(grid.layers[1].name, "B1-h32-L512-M4096-H14336-fnone-mixtral-k2");
  EXPECT_EQ(grid.layers[1].shape.hidden, 14336);
  EXPECT_EQ(grid.layers[1].shape.experts, 16);
  EXPECT_EQ(grid.layers[1].shape.dtype, DType::bfloat16);
  EXPECT_FALSE(grid.layers[1].shape.capacity_factor);
  EXPECT_EQ(grid.file, path);
}

TEST(LayerFile, TheExampleSetsEveryKey) {
  const LayerFile file = find_layer("example");
  LayerShape expected;
  expected.kv_heads = 16;
  expected.experts = 8;
  EXPECT_EQ(file.layer, expected);
  EXPECT_EQ(file.rounding, Rounding::ragged);
  EXPECT_EQ(file.parallel.dp, 8);
  EXPECT_EQ(file.parallel.esp, 4);
  ParallelShape parallel = file.parallel;
  parallel.nodes = 8;
  parallel.ranks_per_node = 4;
  EXPECT_NO_THROW(complete(file.layer, parallel, *file.rounding));
}

TEST(LayerFile, WhatIsAbsentHasItsDefault) {
  const Scratch scratch;
  const LayerFile file =
      read_layer(scratch.write("l.toml", "schema = 1\nname = \"l\"\nseq = 64\ncapacity_factor = \"none\"\n"));
  LayerShape expected;
  expected.seq = 64;
  expected.capacity_factor.reset();
  EXPECT_EQ(file.layer, expected);
  EXPECT_FALSE(file.rounding);
  EXPECT_EQ(file.parallel, ParallelShape{});
}

}  // namespace
}  // namespace moe
