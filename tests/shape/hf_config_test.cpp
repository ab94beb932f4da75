// Published models from their config.json: counts of their cards, FLOPs by hand, and files that are broken.
#include "moe/shape/hf_config.h"

#include <gtest/gtest.h>
#include <iterator>
#include <random>

#include "moe/base/check.h"
#include "moe/base/json.h"
#include "moe/shape/volumes.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"
#include "tests/shape/published_configs.h"

namespace moe {
namespace {

PublishedModel read(const Scratch& scratch, std::string_view config) {
  return read_hf_config(scratch.write("config.json", config));
}

// The count of each: of the card or of the safetensors' index on the Hub, without MTP modules.
TEST(HfConfig, ParametersAreThePublishedOnes) {
  const Scratch scratch;
  EXPECT_GE(std::size(kPublishedConfigs), 24u);
  for (const PublishedConfig& row : kPublishedConfigs) {
    const ModelCounts counts = count_model(read(scratch, row.config));
    EXPECT_NEAR(counts.parameters / row.parameters, 1, 0.001) << row.name;
    if (row.active > 0) {
      EXPECT_NEAR((counts.active - row.without_embedding * counts.embedding) / row.active, 1, row.active_within)
          << row.name;
    }
  }
}

// GLM-4.5's checkpoint has 358,337,776,896 parameters: its MTP module and that module's copies of both ends too.
TEST(HfConfig, MtpModulesAreCountedApart) {
  const Scratch scratch;
  const ModelCounts counts = count_model(read(scratch, published_config("GLM-4.5")));
  EXPECT_NEAR((counts.parameters + counts.mtp + 2 * counts.embedding) / 358'337'776'896.0, 1, 1e-6);
}

// Qwen3-30B-A3B at L = 4096, by hand: queries and output of 32 x 128, keys and values of 4 x 128, scores and their sums
// over 4096 tokens, a router of 128, 8 experts of 3 x 2048 x 768; 48 layers; the output projection.
TEST(HfConfig, FlopsAreThoseByHand) {
  const Scratch scratch;
  const double qwen =
      48.0 * (2 * 2048 * 4096 + 2 * 2048 * 512 + 2 * 4096 * 4096 + 2048 * 128 + 8 * 3 * 2048 * 768) + 2048.0 * 151936;
  EXPECT_EQ(count_model(read(scratch, published_config("Qwen3-30B-A3B"))).forward_flops, 2 * qwen);
  // DeepSeek-V3: W_DQ, W_UQ, W_DKV, W_UKV, W_O; scores over heads of 192 and sums over values of 128.
  const double latent = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168,
               scores = 4096.0 * 128 * (192 + 128);
  const double deepseek =
      61 * (latent + scores) + 3 * (3.0 * 7168 * 18432) + 58 * (7168 * 256 + 9 * 3.0 * 7168 * 2048) + 7168.0 * 129280;
  EXPECT_EQ(count_model(read(scratch, published_config("DeepSeek-V3"))).forward_flops, 2 * deepseek);
  // gpt-oss-20b: 12 of 24 layers see 128 tokens.
  const double oss = 24.0 * (2 * 2880 * 4096 + 2 * 2880 * 512 + 2880 * 32 + 4 * 3 * 2880 * 2880) +
                     12.0 * 2 * 4096 * (4096 + 128) + 2880.0 * 201088;
  EXPECT_EQ(count_model(read(scratch, published_config("gpt-oss-20b"))).forward_flops, 2 * oss);
}

// What model FLOPs utilisation counts of a step is three times a token's forward.
TEST(HfConfig, FlopsAgreeWithThoseOfAStep) {
  for (const char* name : {"mixtral-7b", "qwen3-30b-a3b", "deepseek-v3", "kimi-k2", "gpt-oss-20b"}) {
    const Model model = find_model(name);
    const LayerCase c = complete(model.layer, {.nodes = 1, .ranks_per_node = 1}, Rounding::ragged);
    const double step = step_flops(c, {.layers = model.layers,
                                       .vocabulary = model.vocabulary,
                                       .dense = model.dense.expand(model.layers),
                                       .whole = whole_layers(model.windowed_layers, model.layers)});
    const double token = step / static_cast<double>(c.layer.batch * c.layer.seq);
    EXPECT_NEAR(3 * count_model(published_model(model)).forward_flops / token, 1, 1e-12) << name;
  }
}

TEST(HfConfig, PlansHaveTheShapeAndSayWhatTheyLeaveOut) {
  const Scratch scratch;
  for (const auto& [published, name] : {std::pair{"DeepSeek-V3", "deepseek-v3"},
                                        {"Kimi-K2", "kimi-k2"},
                                        {"Mixtral-8x7B", "mixtral-7b"},
                                        {"Qwen3-30B-A3B", "qwen3-30b-a3b"},
                                        {"OLMoE-1B-7B", "olmoe-1b-7b"},
                                        {"gpt-oss-20b", "gpt-oss-20b"},
                                        {"gpt-oss-120b", "gpt-oss-120b"}}) {
    const PublishedModel model = read(scratch, published_config(published));
    Model planned = planned_model(model);
    const Model preset = find_model(name);
    planned.layer.dtype = preset.layer.dtype;
    EXPECT_EQ(planned.dense, preset.dense);
    EXPECT_EQ(planned.windowed_layers, preset.windowed_layers) << name;
    EXPECT_EQ(complete(planned.layer, {}, Rounding::ragged), complete(preset.layer, {}, Rounding::ragged)) << name;
    if (model.selection_bias) {
      EXPECT_EQ(unplanned_properties(model).front(), "the bias that corrects the choice of experts");
    }
    const ModelCounts of_plans = count_model(published_model(planned)), counts = count_model(model);
    EXPECT_NEAR(of_plans.parameters / counts.parameters, 1, model.expert_bias ? 1e-2 : 1e-4) << name;
    EXPECT_EQ(of_plans.forward_flops, counts.forward_flops) << name;
  }
  const PublishedModel oss = read(scratch, published_config("gpt-oss-20b"));
  EXPECT_EQ(std::tuple(planned_model(oss).layer.window, planned_model(oss).windowed_layers), std::tuple(128, "10"));
  EXPECT_TRUE(replaced_mixers(oss).empty());
  const PublishedModel jamba = read(scratch, published_config("Jamba-v0.1"));
  EXPECT_EQ(jamba.count_of(Mixer::mamba), 28);
  EXPECT_EQ(planned_model(jamba).dense, (DenseRule{14336, 0, 2, {}}));
  EXPECT_EQ(unplanned_properties(jamba).front(), "Mamba in 28 of 32 layers: planned as attention over all tokens");
}

// By the models' own code: whether weights are divided by their sum, and the groups of experts.
TEST(HfConfig, GatesAreTheModelsOwn) {
  const Scratch scratch;
  for (const auto& [name, gate, groups, limit] : {std::tuple{"Mixtral-8x7B", "topk", 0, 0},
                                                  {"Qwen1.5-MoE-A2.7B", "switch", 0, 0},
                                                  {"Qwen3-30B-A3B", "topk", 0, 0},
                                                  {"OLMoE-1B-7B", "switch", 0, 0},
                                                  {"gpt-oss-20b", "topk", 0, 0},
                                                  {"DeepSeek-V2", "switch", 8, 3},
                                                  {"DeepSeek-V3", "sigmoid", 8, 4},
                                                  {"Kimi-K2", "sigmoid", 0, 0},
                                                  {"GLM-4.5", "sigmoid", 0, 0},
                                                  {"granite-3.0-1b-a400m", "topk", 0, 0},
                                                  {"Jamba-v0.1", "switch", 0, 0}}) {
    const LayerShape layer = planned_model(read(scratch, published_config(name))).layer;
    EXPECT_EQ(std::tuple(layer.gate, layer.router_groups, layer.node_limit), std::tuple(gate, groups, limit)) << name;
  }
  Json config = Json::parse(published_config("Qwen3-30B-A3B"));
  config["norm_topk_prob"] = false;
  EXPECT_EQ(planned_model(read_hf_config(scratch.write("config.json", config.dump()))).layer.gate, "switch");
}

TEST(HfConfig, TomlReadsAsTheSameModel) {
  const Scratch scratch;
  for (const PublishedConfig& row : kPublishedConfigs) {
    const Model planned = planned_model(read(scratch, row.config));
    const Model again = read_model(scratch.write("m.toml", model_toml(planned)));
    EXPECT_EQ(std::tie(again.layers, again.dense, again.vocabulary, again.tied_embedding, again.traits, again.source),
              std::tie(planned.layers, planned.dense, planned.vocabulary, planned.tied_embedding, planned.traits,
                       planned.source))
        << row.name;
    EXPECT_EQ(again.layer, planned.layer) << row.name;
    EXPECT_EQ(again.windowed_layers, planned.windowed_layers) << row.name;
  }
}

TEST(HfConfig, FoldersAndNestedModelsAreRead) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.path("Kimi"));
  Json outer{{"model_type", "kimi_k25"}, {"vision_config", {{"depth", 2}}}, {"tie_word_embeddings", false}};
  outer["text_config"] = Json::parse(published_config("Kimi-K2"));
  scratch.write("Kimi/config.json", outer.dump());
  const PublishedModel m = find_published_model(scratch.path("Kimi"));
  EXPECT_EQ(m.name, "Kimi");
  EXPECT_EQ(count_model(m).parameters, 1'026'408'232'448.0);
  EXPECT_EQ(unplanned_properties(m).back(), "vision_config: the text model alone is planned and counted");
  outer["text_config"]["hidden_size"] = "wide";
  const std::string path = scratch.write("Kimi/config.json", outer.dump());
  EXPECT_EQ(error_of<BadInput>([&] { find_model(scratch.path("Kimi")); }),
            path + ": text_config.hidden_size: found 'wide', expected a whole number >= 1 and <= 1048576");
}

TEST(HfConfig, WhatIsNotUnderstoodIsNamed) {
  const Scratch scratch;
  struct Bad {
    std::string_view key;
    Json value;
    std::string_view message;
  };
  for (const Bad& bad : {Bad{"num_extra_heads", 2, "num_extra_heads: found 2, expected no such key: it may change"},
                         {"attention_kind", "linear", "attention_kind: found 'linear', expected no such key"},
                         {"hidden_size", -1, "hidden_size: found -1, expected a whole number"},
                         {"num_key_value_heads", 5, "num_key_value_heads: found 5, expected a divisor of"},
                         {"num_experts_per_tok", 129, "num_experts_per_tok: found 129, expected a whole number"},
                         {"mlp_only_layers", {48}, "mlp_only_layers: found 48, expected a whole number"},
                         {"use_sliding_window", true, "use_sliding_window: found true, expected layer_types"},
                         {"head_dim", 127, "head_dim: found heads of 127, expected an even width"},
                         {"model_type", "llama", "model_type: found 'llama', expected one of: mixtral, "}}) {
    Json config = Json::parse(published_config("Qwen3-30B-A3B"));
    config[std::string(bad.key)] = bad.value;
    const std::string path = scratch.write("config.json", config.dump());
    const std::string message = error_of<BadInput>([&] { read_hf_config(path); });
    EXPECT_TRUE(message.starts_with(path + ": " + std::string(bad.message))) << message;
  }
  Json config = Json::parse(published_config("Qwen3-30B-A3B"));
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"use_something", false}, {"another", nullptr}, {"_name_or_path", "x"}, {"rope_scaling", {{"factor", 4}}}})
    config[key] = value;
  EXPECT_EQ(read_hf_config(scratch.write("config.json", config.dump())).ignored_keys.size(), 4u);
}

Json random_value(std::mt19937& random) {
  const Json values[] = {nullptr,
                         true,
                         false,
                         -1,
                         0,
                         1,
                         2.5,
                         3,
                         1e300,
                         1 << 20,
                         int64_t{1} << 40,
                         "",
                         "text",
                         "\x01\n\"",
                         Json::array(),
                         Json::array({1}),
                         Json::array({"a", nullptr}),
                         Json::object(),
                         Json{{"a", 1}}};
  return values[random() % std::size(values)];
}

// Changes, removes, renames or adds a key.
Json mutated(Json config, std::mt19937& random) {
  const auto at = std::next(config.begin(), static_cast<std::ptrdiff_t>(random() % config.size()));
  const std::string key = at.key();
  switch (random() % 4) {
    case 0:
      config.erase(key);
      break;
    case 1:
      config[key + "s"] = config[key];
      config.erase(key);
      break;
    case 2:
      config["a_new_key"] = random_value(random);
      break;
    default:
      config[key] = random_value(random);
  }
  return config;
}

TEST(HfConfig, MutatedFilesAreReadOrRefusedByKey) {
  const Scratch scratch;
  std::mt19937 random(46);
  int refused = 0;
  for (const PublishedConfig& row : kPublishedConfigs)
    for (int i = 0; i < 100; ++i) {
      const Json config = mutated(Json::parse(row.config), random);
      const std::string path = scratch.write("config.json", config.dump());
      try {
        const PublishedModel m = read_hf_config(path);
        EXPECT_GT(count_model(m).parameters, 0);
        read_model(scratch.write("m.toml", model_toml(planned_model(m))));
      } catch (const BadInput& error) {
        ++refused;
        const std::string_view message = error.what();
        EXPECT_TRUE(message.starts_with(path + ": ")) << message;
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
        EXPECT_NE(message.find(": found "), std::string::npos) << message;
      }
    }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace moe
