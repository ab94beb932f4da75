// Grids whose layers come on several shapes of ranks: Parm's Table III.
#include <gtest/gtest.h>
#include <set>
#include <tuple>

#include "moe/base/check.h"
#include "moe/shape/grid.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

TEST(ParallelGrid, ParmsAreTable3) {
  for (const auto& [name, ranks, ranks_per_node, gib] :
       {std::tuple{"parm-a", std::set<int>{8}, 8, 24}, {"parm-b", std::set<int>{8, 16, 32}, 4, 11}}) {
    const Grid grid = find_grid(name);
    EXPECT_EQ(grid.memory_bytes, gib * kGiB) << name;
    std::set<std::tuple<int, int, int, int64_t, int64_t, int64_t, int64_t, double>> layers;
    std::set<std::string> names;
    for (const GridLayer& layer : grid.layers) {
      ASSERT_TRUE(layer.parallel);
      const ParallelShape& p = *layer.parallel;
      const LayerShape& l = layer.shape;
      names.insert(layer.name);
      layers.emplace(p.ranks(), p.mp, p.esp, l.batch, l.seq, l.model_dim / p.esp, l.hidden / p.esp, *l.capacity_factor);
      EXPECT_EQ(p.ranks_per_node, ranks_per_node);
      EXPECT_EQ(l.experts, p.ranks() / p.esp) << layer.name;
      EXPECT_EQ(l.model_dim % p.esp + l.hidden % p.esp, 0);
      const LayerCase whole = complete(l, p, grid.rounding);
      EXPECT_EQ(whole.parallel.ep * whole.parallel.esp, p.ranks()) << "EP spans all ranks";
    }
    EXPECT_EQ(names.size(), grid.layers.size());
    decltype(layers) expected;
    for (const int p : ranks)
      for (const int mp : {1, 2, 4})
        for (const int esp : {1, 2, 4})
          for (const int b : {2, 4, 8})
            for (const int l : {512, 1024, 2048})
              for (const int m : {1024, 2048, 4096})
                for (const int h : {1024, 2048, 4096})
                  for (const double f : {1.2, 2.4}) expected.emplace(p, mp, esp, b, l, m, h, f);
    EXPECT_EQ(layers, expected) << name;
    EXPECT_EQ(grid.layers.size(), expected.size());
  }
}

constexpr std::string_view kGrid = R"(schema = 1
name = "mine"
source = "a test"
cluster = "here"
capacity_rounding = "ragged"
[parallel]
ranks = [4, 8]
ranks_per_node = 4
mp = 2
esp = [1, 2]
[layers]
batch = 1
heads = 8
seq = 64
model_dim_per_esp = 64
hidden_scale = 4
capacity_factor = 1.2
ffn = "gpt"
top_k = 1
experts = "esp-groups"
)";

TEST(ParallelGrid, ItsShapesVarySlowestAndNameTheLayers) {
  const Scratch scratch;
  const Grid grid = read_grid(scratch.write("g.toml", kGrid));
  EXPECT_EQ(grid.memory_bytes, std::nullopt);
  std::vector<std::string> names;
  for (const GridLayer& layer : grid.layers) names.push_back(layer.name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "P4-mp2-esp1-B1-h8-L64-M64-H256-f1.2-gpt", "P4-mp2-esp2-B1-h8-L64-M128-H512-f1.2-gpt",
                       "P8-mp2-esp1-B1-h8-L64-M64-H256-f1.2-gpt", "P8-mp2-esp2-B1-h8-L64-M128-H512-f1.2-gpt"}));
  EXPECT_EQ(grid.layers[2].shape.experts, 8);
  EXPECT_EQ(grid.layers[3].parallel->nodes, 2);
}

TEST(ParallelGrid, SizesThatAreNotListedAreTheDefaults) {
  const Scratch scratch;
  std::string text(kGrid);
  for (const std::string_view line : {"mp = 2\n", "esp = [1, 2]\n"}) text.erase(text.find(line), line.size());
  text.replace(text.find("model_dim_per_esp"), 17, "model_dim");
  text.replace(text.find("\"esp-groups\""), 12, "\"nodes\"");
  const Grid grid = read_grid(scratch.write("g.toml", text));
  ASSERT_EQ(grid.layers.size(), 2u);
  const LayerCase whole = complete(grid.layers[1].shape, *grid.layers[1].parallel, grid.rounding);
  EXPECT_EQ(std::tie(whole.parallel.mp, whole.parallel.esp, whole.parallel.ep), std::tuple(4, 4, 2));
}

TEST(ParallelGrid, WhatCannotBeReadIsNamed) {
  const Scratch scratch;
  struct Bad {
    std::string_view from, to, message;
  };
  for (const Bad& bad :
       {Bad{"ranks = [4, 8]", "ranks = [4, 6]", "7: parallel.ranks: found 6, expected multiples of ranks_per_node = 4"},
        {"ranks = [4, 8]\n", "", "6: parallel.ranks: found no such key"},
        {"ranks_per_node = 4\n", "", "6: parallel.ranks_per_node: found no such key"},
        {"mp = 2", "tp = 2", "9: parallel.tp: found unknown key 'tp', expected one of: ranks, ranks_per_node"},
        {"mp = 2", "mp = [2, 2]", "9: parallel.mp: found 2, expected each candidate once"},
        {"mp = 2", "memory_bytes = -1", "9: parallel.memory_bytes: found -1, expected a number > 0"},
        {"esp = [1, 2]\n", "", "14: layers.model_dim_per_esp: found no esp in [parallel], expected one beside"},
        {"model_dim_per_esp = 64", "model_dim_per_esp = 64\nmodel_dim = 64",
         "15: layers.model_dim_per_esp: found both model_dim and model_dim_per_esp, expected one of them"},
        {"model_dim_per_esp = 64", "model_dim_per_esp = 1000000",
         "15: layers.model_dim_per_esp: found 2000000 (of 1000000 x esp 2), expected at most 1048576"},
        {"model_dim_per_esp = 64", "model_dim_per_esp = 400000",
         "16: layers.hidden_scale: found 4 of model_dim 400000, expected a whole hidden size"},
        {"hidden_scale = 4", "hidden_scale = 4\nhidden_per_esp = 64",
         "16: layers.hidden_scale: found both hidden and hidden_scale, expected one of them"}}) {
    std::string text(kGrid);
    const size_t at = text.find(bad.from);
    ASSERT_NE(at, std::string::npos) << bad.from;
    text.replace(at, bad.from.size(), bad.to);
    const std::string path = scratch.write("bad.toml", text);
    const std::string message = error_of<BadInput>([&] { read_grid(path); });
    EXPECT_TRUE(message.starts_with(fmt::format("{}:{}", path, bad.message))) << message;
  }
}

TEST(ParallelGrid, EspGroupsNeedParallel) {
  const Scratch scratch;
  std::string text(kGrid);
  const size_t begin = text.find("[parallel]");
  text.erase(begin, text.find("[layers]") - begin);
  text.replace(text.find("model_dim_per_esp"), 17, "model_dim");
  const std::string path = scratch.write("bad.toml", text);
  EXPECT_EQ(error_of<BadInput>([&] { read_grid(path); }),
            path + ":15: layers.experts: found 'esp-groups', expected [parallel] beside 'esp-groups'");
}

}  // namespace
}  // namespace moe
