#include "commands/shared/chosen_model.h"

#include <gtest/gtest.h>

#include "moe/base/config_files.h"

namespace moe::commands {
namespace {

// A command that sets no group is refused none.
TEST(ChosenModel, HasGroupsThatDivideOnEveryClusterThatComesWithIt) {
  for (const std::string& cluster : config_names("clusters")) {
    const Profile profile = find_profile(cluster);
    for (const std::string& model : config_names("models")) {
      if (model.find('@') != std::string::npos) continue;  // of one cluster
      ModelFlags flags;
      flags.model = model;
      EXPECT_NO_THROW(chosen_model(flags, {}, profile)) << model << " on " << cluster;
    }
  }
}

TEST(ChosenModel, HasGroupsThatDivideBesideThoseThatWereSet) {
  const Profile profile = find_profile("testbed-a");  // 6 x 8
  Selection asked;
  asked.layer.fields.set(&LayerShape::experts, 8);
  asked.layer.dp = 12;
  EXPECT_EQ(chosen_model({}, asked, profile).model.shape.parallel.mp, 4);
  asked.layer.dp.reset();
  asked.layer.ep = 8;
  EXPECT_EQ(chosen_model({}, asked, profile).model.shape.parallel.esp, 2) << "8 x 2 divide 48, 8 x 8 and 8 x 4 do not";
  asked.layer.ep.reset();
  asked.layer.esp = 4;
  EXPECT_EQ(chosen_model({}, asked, profile).model.shape.parallel.ep, 4) << "6 do not divide 8 experts";
  asked.layer.esp.reset();
  asked.layer.pp = 4;  // stages of 12 ranks: one and a half nodes
  EXPECT_EQ(chosen_model({}, asked, profile).model.shape.parallel.mp, 4);
}

TEST(ChosenModel, SaysWhatIsSoOnThisClusterAlone) {
  const auto said = [](const char* model, const char* cluster, const Selection& selection = {},
                       std::optional<int> layers = {}) {
    ModelFlags flags;
    flags.model = model;
    flags.layers = layers;
    return chosen_model(flags, selection, find_profile(cluster)).model_on_cluster;
  };
  EXPECT_EQ(said("gpt2-xl@fsmoe", "testbed-b"), "E 8, which the model leaves open; L 256, elsewhere 1024");
  EXPECT_EQ(said("gpt2-xl@fsmoe", "testbed-a"), "E 6, which the model leaves open");
  EXPECT_EQ(said("mixtral-7b@fsmoe", "testbed-b"),
            "E 8, which the model leaves open; layers 7, elsewhere 32; L 256, elsewhere 1024");
  EXPECT_EQ(said("mixtral-7b", "testbed-b"), "");
  Selection asked;
  asked.layer.fields.set(&LayerShape::experts, 16);
  asked.layer.fields.set(&LayerShape::seq, 512);
  EXPECT_EQ(said("mixtral-7b@fsmoe", "testbed-b", asked, 4), "") << "flags say the rest";
}

}  // namespace
}  // namespace moe::commands
