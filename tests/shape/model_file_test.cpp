// Model files: those that come with the program, what clusters change, and what can't be read.
#include "moe/shape/model_file.h"

#include <gtest/gtest.h>
#include <tuple>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/shape/volumes.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

struct Card {
  std::string_view name;
  int layers;
  int64_t model_dim, hidden, heads, kv_heads;
  Ffn ffn;
};

TEST(ModelFile, ShapesAreTheModelCards) {
  for (const Card& card : {Card{"gpt2-xl", 48, 1600, 6400, 25, 0, Ffn::gpt},
                           {"mixtral-7b", 32, 4096, 14336, 32, 8, Ffn::mixtral},
                           {"mixtral-22b", 56, 6144, 16384, 48, 8, Ffn::mixtral},
                           {"gpt2-xl@fsmoe", 48, 1600, 6400, 25, 0, Ffn::gpt},
                           {"mixtral-7b@fsmoe", 32, 4096, 14336, 32, 8, Ffn::mixtral},
                           {"mixtral-22b@fsmoe", 56, 6144, 16384, 48, 8, Ffn::mixtral},
                           {"bert-base", 12, 768, 3072, 12, 0, Ffn::gpt},
                           {"gpt-2", 12, 768, 3072, 12, 0, Ffn::gpt},
                           {"transformer-xl", 12, 512, 2048, 8, 0, Ffn::gpt},
                           {"bert2gpt2", 24, 768, 3072, 12, 0, Ffn::gpt}}) {
    const Model m = find_model(std::string(card.name));
    EXPECT_EQ(m.name, card.name);
    EXPECT_EQ(std::tie(m.layers, m.layer.model_dim, m.layer.hidden, m.layer.heads, m.layer.kv_heads, m.layer.ffn),
              std::tie(card.layers, card.model_dim, card.hidden, card.heads, card.kv_heads, card.ffn))
        << card.name;
    EXPECT_EQ(m.layer.top_k, 2) << card.name;
    const bool published = card.name.starts_with("mixtral") && !card.name.ends_with("@fsmoe");
    EXPECT_EQ(m.layer.capacity_factor, published ? std::nullopt : std::optional(1.2)) << card.name;
    EXPECT_EQ(m.layer.experts, published ? 8 : 0) << card.name;
  }
}

// DeepSeek-V3's report (arXiv:2412.19437, section 4.2): a shared expert as wide as a routed one.
TEST(ModelFile, DeepSeeksSharedExpertIsItsCards) {
  const Model m = find_model("deepseek-v3");
  EXPECT_EQ(m.layers, 61);
  EXPECT_EQ(m.dense, (DenseRule{18432, 3, 1, {}})) << "first_k_dense_replace, intermediate_size of its config";
  EXPECT_EQ(std::tie(m.layer.model_dim, m.layer.hidden, m.layer.shared_hidden, m.layer.heads, m.vocabulary),
            std::tuple(7168, 2048, 1 * 2048, 128, 129280));
  EXPECT_EQ(std::tie(m.layer.experts, m.layer.top_k, m.layer.ffn), std::tuple(256, 8, Ffn::mixtral));
  EXPECT_EQ(m.layer.node_limit, 4) << "section 2.1.2";
  const LayerCase c = complete(m.layer, {.nodes = 1, .ranks_per_node = 1}, Rounding::ragged);
  const double dense = static_cast<double>(attention_parameters(c) + shared_parameters(c)) + 256 * 7168;
  const double first = static_cast<double>(attention_parameters(c)) + 3.0 * 7168 * 18432;
  EXPECT_EQ(static_cast<double>(gradient_bytes(dense_case(c, 18432))), first * bytes_of(c.layer.dtype));
  const double all = 58 * (dense + 256.0 * 3 * 7168 * 2048) + 3 * first + 2.0 * 129280 * 7168;
  // Down to latents of 1536 and 512 (with a rotary key of 64), whose norms have gains; no prediction head.
  const double latents = 61.0 * (7168 * (1536 + 512 + 64) + 1536 + 512), norms = (2 * 61 + 1) * 7168;
  const double choice = 58 * 256;  // a bias that corrects the choice of experts, which is in no plan
  EXPECT_EQ(all + latents + norms + choice, 671'026'419'200);
  EXPECT_EQ(attention_parameters(c), 1536 * 128 * 192 + 512 * 128 * (128 + 128) + 128 * 128 * 7168);
  EXPECT_EQ(61 * latent_parameters(m.layer), static_cast<int64_t>(latents));
}

// Parameters in all, as the models' cards print them.
TEST(ModelFile, HeadsOfTheirOwnWidthMakeTheCardsParameters) {
  for (const auto& [name, head_dim, parameters] : {std::tuple{"qwen3-30b-a3b", 128, 30.5e9},
                                                   {"qwen3-235b-a22b", 128, 235e9},
                                                   {"gpt-oss-20b", 64, 20.9e9},
                                                   {"gpt-oss-120b", 64, 116.8e9}}) {
    const Model m = find_model(name);
    EXPECT_EQ(m.layer.head_dim, head_dim) << name;
    const LayerCase c = complete(m.layer, {.nodes = 1, .ranks_per_node = 1}, Rounding::ragged);
    const double width = static_cast<double>(m.layer.model_dim), experts = static_cast<double>(m.layer.experts);
    const double layer =
        static_cast<double>(attention_parameters(c)) + experts * width * (1 + 3 * static_cast<double>(m.layer.hidden));
    const double all = m.layers * layer + 2.0 * static_cast<double>(m.vocabulary) * width;
    EXPECT_NEAR(all / parameters, 1, 0.002) << name;
  }
}

TEST(ModelFile, EveryFileReads) {
  EXPECT_FALSE(config_names("models").empty());
  for (const auto& name : config_names("models")) EXPECT_EQ(find_model(name).name, name);
  EXPECT_TRUE(
      error_of<BadInput>([] {
        find_model("gpt5");
      }).starts_with("model: found 'gpt5', expected a file or one of: bert-base, bert-large, bert2gpt2, deepseek-v3"));
}

// MoNTA: what it prints of its model, and that Table 8's AlltoAll is the model's.
TEST(ModelFile, TwoExpertsOf70BAreMontas) {
  const Model m = find_model("moe-2x70b");
  EXPECT_EQ(std::tie(m.layer.model_dim, m.layer.experts, m.layer.top_k, m.layer.seq), std::tuple(8192, 2, 2, 8192));
  const LayerCase c = complete(m.layer, {.nodes = 2, .ranks_per_node = 8}, Rounding::ragged);
  EXPECT_EQ(std::tie(c.parallel.mp, c.parallel.ep, c.parallel.esp), std::tuple(8, 2, 8));
  EXPECT_EQ(mp_bytes(c) * 2, 256.0 * (1 << 20)) << "k b s h BPE";
}

// FSMoE, section 6.4.
TEST(ModelFile, ClustersChangeWhatThePaperSays) {
  const auto on = [](const char* model, const std::string& cluster) {
    const Model m = model_on_cluster(find_model(model), cluster);
    EXPECT_TRUE(m.overrides.empty());
    EXPECT_EQ(m.layer.experts, 0) << "one a node";
    return std::tuple{m.layers, m.layer.batch, m.layer.seq};
  };
  for (const std::string a : {"testbed-a", "testbed-a-printed", "testbed-a-driver-experts", "testbed-a-fitted"}) {
    EXPECT_EQ(on("gpt2-xl@fsmoe", a), std::tuple(48, 1, 1024)) << a;
    EXPECT_EQ(on("mixtral-7b@fsmoe", a), std::tuple(32, 1, 1024)) << a;
    EXPECT_EQ(on("mixtral-22b@fsmoe", a), std::tuple(33, 1, 1024)) << a;
  }
  for (const std::string b : {"testbed-b", "testbed-b-fitted"}) {
    EXPECT_EQ(on("gpt2-xl@fsmoe", b), std::tuple(48, 1, 256)) << b;
    EXPECT_EQ(on("mixtral-7b@fsmoe", b), std::tuple(7, 1, 256)) << b;
  }
  EXPECT_EQ(on("mixtral-7b@fsmoe", "elsewhere"), std::tuple(32, 1, 1024));
}

TEST(ModelFile, EveryModelIsAWholeCaseOnItsClusters) {
  struct Cluster {
    const char* name;
    int nodes, ranks_per_node;
  };
  const Cluster a{"testbed-a", 6, 8}, b{"testbed-b", 8, 4}, parm_a{"parm-a", 1, 8}, parm_b{"parm-b", 8, 4};
  for (const auto& [name, cluster, experts, ep] : {std::tuple{"gpt2-xl@fsmoe", a, 6, 6},
                                                   {"gpt2-xl@fsmoe", b, 8, 8},
                                                   {"mixtral-7b@fsmoe", a, 6, 6},
                                                   {"mixtral-7b@fsmoe", b, 8, 8},
                                                   {"mixtral-22b@fsmoe", a, 6, 6},
                                                   {"bert-base", parm_a, 2, 2},
                                                   {"bert-base", parm_b, 8, 8},
                                                   {"gpt-2", parm_a, 2, 2},
                                                   {"gpt-2", parm_b, 8, 8},
                                                   {"gpt-2", b, 8, 8}}) {
    const Model model = model_on_cluster(find_model(name), cluster.name);
    ParallelShape parallel = model.parallel;
    parallel.nodes = cluster.nodes;
    parallel.ranks_per_node = cluster.ranks_per_node;
    const LayerCase whole = complete(model.layer, parallel, Rounding::ragged);
    EXPECT_EQ(whole.layer.experts, experts) << name << " on " << cluster.name;
    EXPECT_EQ(whole.parallel.ep, ep) << name << " on " << cluster.name;
  }
}

constexpr std::string_view kModel = R"(schema = 1
name = "mine"
source = "a test"
layers = 4
[layer]
seq = 64
model_dim = 128
hidden = 256
heads = 4
[parallel]
mp = 2
[[on]]
clusters = ["here", "there"]
batch = 3
experts = 5
ep = 1
[[on]]
clusters = ["here-fitted"]
layers = 2
)";

TEST(ModelFile, OverridesTakeTheirKeysAlone) {
  const Scratch scratch;
  const Model model = read_model(scratch.write("m.toml", kModel));
  EXPECT_EQ(model.parallel.mp, 2);
  EXPECT_EQ(model.vocabulary, 0);
  EXPECT_EQ(model.layer.batch, LayerShape{}.batch);
  const Model there = model_on_cluster(model, "there-fitted"), fitted = model_on_cluster(model, "here-fitted");
  EXPECT_EQ(std::tie(there.layers, there.layer.batch, there.layer.seq, there.layer.experts), std::tuple(4, 3, 64, 5));
  EXPECT_EQ(std::tuple(model.parallel.ep, there.parallel.ep, fitted.parallel.ep), std::tuple(0, 1, 0));
  EXPECT_EQ(std::tie(fitted.layers, fitted.layer.batch), std::tuple(2, LayerShape{}.batch)) << "its own name first";
}

TEST(ModelFile, WhatCannotBeReadIsNamed) {
  const Scratch scratch;
  struct Bad {
    std::string_view from, to, message;
  };
  for (const Bad& bad :
       {Bad{"schema = 1", "schema = 2", "1: schema: found 2, expected the whole number 1"},
        {"layers = 4", "layer_count = 4", "4: layer_count: found unknown key 'layer_count', expected one of: schema"},
        {"layers = 4\n", "", "1: layers: found no such key, expected a whole number"},
        {"layers = 4", "layers = 0", "4: layers: found 0, expected a whole number >= 1"},
        {"source = \"a test\"\n", "", "1: source: found no such key"},
        {"heads = 4", "head = 4", "9: layer.head: found unknown key 'head', expected one of: batch"},
        {"heads = 4\n", "", "5: layer.heads: found no such key"},
        {"heads = 4", "heads = 4.5", "9: layer.heads: found 4.5, expected a whole number"},
        {"heads = 4", "heads = 4\nffn = \"relu\"", "10: layer.ffn: unknown 'relu', expected one of: gpt, mixtral"},
        {"mp = 2", "tp = 2", "11: parallel.tp: found unknown key 'tp', expected one of: dp, cp, cp_exchange, mp"},
        {"batch = 3", "batch = 0", "14: on.batch: found 0, expected a whole number >= 1"},
        {"batch = 3", "heads = 3", "14: on.heads: found unknown key 'heads', expected one of: clusters, layers"},
        {"[\"here\", \"there\"]", "[1]", "13: on.clusters: found 1, expected names of clusters"},
        {"[\"here\", \"there\"]", "[]", "13: on.clusters: found a list of 0"},
        {"[\"here-fitted\"]", "[\"there\"]", "18: on.clusters: found 'there', expected each cluster once"},
        {"clusters = [\"here\", \"there\"]\n", "", "12: on.clusters: found no such key"},
        {"layers = 4", "layers = 4\nmoe_every = 2", "1: dense_hidden: found no such key, expected a whole number"},
        {"layers = 4", "layers = 4\nmoe_every = 5", "5: moe_every: found 5, expected a whole number >= 1 and <= 4"},
        {"layers = 4", "layers = 4\nfirst_dense = 4", "5: first_dense: found 4, expected a whole number >= 0 and <= 3"},
        {"layers = 4", "layers = 4\ndense_layers = [0, 4]", "5: dense_layers: found 4, expected a whole number >= 0"},
        {"layers = 4", "layers = 4\ndense_layers = [1.5]", "5: dense_layers: found 1.5, expected a whole number"},
        {"layers = 4", "layers = 4\nfirst_dense = 3\ndense_layers = [3]",
         "6: dense_layers: found a list of 1, expected at least one MoE layer"},
        {"layers = 4", "layers = 4\nmoe_every = 2\ndense_hidden = 0", "6: dense_hidden: found 0, expected a whole"},
        {"layers = 4", "layers = 4\nwindowed_layers = \"10\"",
         "5: windowed_layers: found '10', expected a window in [layer] beside it"},
        {"layers = 4\n[layer]", "layers = 4\nwindowed_layers = \"00\"\n[layer]\nwindow = 2",
         "5: windowed_layers: found '00', expected 1 for layers with the window of [layer], and 0 for others"},
        {"layers = 4", "layers = 4\ndense_hidden = 64",
         "5: dense_hidden: found 64, expected a key beside it that says which layers are dense"}}) {
    std::string text(kModel);
    const size_t at = text.find(bad.from);
    ASSERT_NE(at, std::string::npos) << bad.from;
    text.replace(at, bad.from.size(), bad.to);
    const std::string path = scratch.write("bad.toml", text);
    const std::string message = error_of<BadInput>([&] { read_model(path); });
    EXPECT_TRUE(message.starts_with(fmt::format("{}:{}", path, bad.message))) << message;
  }
}

}  // namespace
}  // namespace moe
