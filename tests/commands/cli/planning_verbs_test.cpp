// The verbs that plan without a schedule, as a user meets them: memory, placement, and what list says of files.
#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/commands/cli/program_test.h"

namespace moe {
namespace {

using Json = nlohmann::json;

using PlanningVerbs = ProgramTest;

// Whatever this machine is like: a variable of debugging is warned of.
TEST_F(PlanningVerbs, DoctorFailsOnAWarningIfItIsStrict) {
  ::setenv("NCCL_DEBUG", "INFO", 1);
  const Json json = json_of({"doctor"});
  EXPECT_GE(json["warnings"].get<int>(), 1);
  EXPECT_EQ(json["fingerprint"].get<std::string>().size(), 16U);
  EXPECT_EQ(json["machine"]["fingerprint"], json["fingerprint"]);
  const Printed text = run({"doctor"}), strict = run({"doctor", "--strict", "--all"});
  ::unsetenv("NCCL_DEBUG");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(strict.exit_code, 5) << strict.err;
  EXPECT_TRUE(strict.err.empty()) << strict.err;
  EXPECT_NE(text.out.find("unset NCCL_DEBUG"), std::string::npos) << text.out;
  EXPECT_LE(std::ranges::count(text.out, '\n'), 45) << text.out;
  EXPECT_GT(strict.out.size(), text.out.size());
}

// The script reads the verbs from the program's table, and says which of its two builds a verb needs.
TEST_F(PlanningVerbs, TheScriptKnowsEveryVerb) {
  const std::string known = run({}).err;  // "... expected one of: list, simulate, ..."
  const std::string usage = run_program(MOETUNE_SOURCE_DIR "/moetune", {"--help"}, testing::TempDir()).out;
  const size_t runs = usage.find("\nverbs that run ");
  ASSERT_NE(runs, std::string::npos) << usage;
  std::istringstream names(known.substr(known.find("one of: ") + 8));
  int count = 0;
  for (std::string name; std::getline(names, name, ',');) {
    std::erase_if(name, [](char c) { return std::isspace(static_cast<unsigned char>(c)); });
    const size_t at = usage.find("\n  " + name + " ");
    ASSERT_NE(at, std::string::npos) << name << " is not in " << usage;
    static const std::set<std::string> kRuns{"tune",   "microbench", "layerbench", "modelbench",
                                             "launch", "ab",         "self-test"};
    EXPECT_EQ(at > runs, kRuns.contains(name)) << name;
    ++count;
  }
  EXPECT_GE(count, 10);
}

TEST_F(PlanningVerbs, HaveHelpWithAnExampleThatRuns) {
  for (const std::vector<std::string>& example :
       {std::vector<std::string>{"memory", "--model", "mixtral-7b", "--cluster", "testbed-b", "--zero", "1"},
        {"placement", "--ep", "8", "--cp", "4", "--switch-ports", "32"}}) {
    const Printed help = run({example.front(), "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.out.find(fmt::format("example:\n  ./moetune {}", fmt::join(example, " "))), std::string::npos)
        << help.out;
    EXPECT_EQ(run(example).exit_code, 0);
  }
}

// Mixtral-7B as FSMoE trains it on testbed B: 3 x 4096 x 14336 / 4 of experts, (2 x 4096^2 + 2 x 4096 x 1024) / 4 of
// attention, 4 x 4096 of norms and 2 x 8 x 4096 of the gate, 7 times, and 2 x 32000 x 4096 / 4 on the ends.
TEST_F(PlanningVerbs, MemoryOfAModelAsText) {
  const Printed printed = run({"memory", "--model", "mixtral-7b@fsmoe"});
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_EQ(printed.out,
            R"(mixtral-7b@fsmoe on testbed-b (8 nodes x 4): 7 layers of B1 L256 M4096 H14336 E8 k2 f1.2 mixtral
pp 1 dp 8 mp 4 ep 8 esp 4 edp 1; ZeRO 0, 1 of 1 micro-batches in flight (gpipe), recompute none

   weights  gradients  optimizer  activations   buffers     total  of 11.00 GiB
  --------  ---------  ---------  -----------  --------  --------  ------------
  1.67 GiB   1.67 GiB   3.34 GiB    387.6 MiB  68.0 MiB  7.12 GiB          65 %
)");
}

// What does not fit is followed by what a rank needs that keeps less, as the same flags print it.
TEST_F(PlanningVerbs, MemoryThatDoesNotFitSaysWhatWould) {
  const std::vector<std::string> asked{"memory", "--model", "qwen3-30b-a3b", "--cluster", "h100-8"};
  const std::string out = run(asked).out;
  const size_t line = out.find("smaller if less is kept: --zero 1: ");
  ASSERT_NE(line, std::string::npos) << out;
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--zero", "1"}, {"--zero", "1", "--recompute", "full"}}) {
    std::vector<std::string> less = asked;
    less.insert(less.end(), flags.begin(), flags.end());
    const Json json = json_of(less);
    double total = 0;
    for (const Json& e : json["estimates"])
      if (e["activations_model"] == "counted") total = e["total_bytes"];
    EXPECT_NE(out.find(fmt::format("{}: {:.2f} GiB", fmt::join(flags, " "), total / (1 << 30)), line),
              std::string::npos)
        << out;
  }
  EXPECT_EQ(run({"memory", "--model", "mixtral-7b@fsmoe"}).out.find("smaller if less is kept"), std::string::npos);

  // Where EDP and DP are 1, ZeRO saves nothing.
  const std::string alone = run({"memory", "--model", "mixtral-7b", "--cluster", "h100-8", "--mp", "8", "--esp", "8",
                                 "--ep", "1", "--batch", "32"})
                                .out;
  EXPECT_NE(alone.find("smaller if less is kept: "), std::string::npos) << alone;
  EXPECT_EQ(alone.find("--zero 1"), std::string::npos) << alone;
}

TEST_F(PlanningVerbs, HelpOfAVerbIsItsHelpFlag) {
  for (const std::vector<std::string>& verb : {std::vector<std::string>{}, {"memory"}, {"layerbench"}}) {
    std::vector<std::string> before{"help"}, behind = verb;
    before.insert(before.end(), verb.begin(), verb.end());
    behind.push_back("--help");
    EXPECT_EQ(run(before).out, run(behind).out);
    EXPECT_GT(run(before).out.size(), 500U);
  }
  EXPECT_EQ(run({"help", "memroy"}).exit_code, 2);
}

TEST_F(PlanningVerbs, MemoryAsJson) {
  const Json json = json_of({"memory", "--model", "mixtral-7b@fsmoe", "--layers", "32"});
  const double parameters =
      32 * (3 * 4096.0 * 14336 / 4 + (2 * 4096.0 * 4096 + 2 * 4096.0 * 1024) / 4 + 2 * 4096 + 2 * 8 * 4096) +
      2 * 32000 * 4096.0 / 4 + 4096;
  EXPECT_EQ(json["cluster"], "testbed-b");
  EXPECT_EQ(json["model"], "mixtral-7b@fsmoe");
  EXPECT_EQ(json["layers"], 32);
  EXPECT_EQ(json["layer"]["seq"], 256) << "as on testbed-b";
  EXPECT_EQ(json["memory_bytes"], 11.0 * (1 << 30));
  ASSERT_EQ(json["estimates"].size(), 3u);
  for (const Json& e : json["estimates"]) {
    EXPECT_DOUBLE_EQ(e["weights_bytes"], 4 * parameters);
    EXPECT_DOUBLE_EQ(e["optimizer_bytes"], 8 * parameters);
    EXPECT_EQ(e["fits"], false);
    EXPECT_NE(e["reason"].get<std::string>().find("does not fit: needs "), std::string::npos);
    EXPECT_DOUBLE_EQ(e["total_bytes"].get<double>(),
                     e["weights_bytes"].get<double>() + e["gradients_bytes"].get<double>() +
                         e["optimizer_bytes"].get<double>() + e["activations_bytes"].get<double>() +
                         e["buffers_bytes"].get<double>());
  }
}

TEST_F(PlanningVerbs, FlagsGoOverTheModel) {
  const Json json = json_of({"memory", "--model", "gpt2-xl", "--cluster", "testbed-a", "--pp", "2", "--micro-batches",
                             "8", "--pipeline", "1f1b", "--batch", "2", "--memory-gib", "80"});
  EXPECT_EQ(json["layers"], 48);
  EXPECT_EQ(json["layer"]["batch"], 2);
  EXPECT_EQ(json["layer"]["pp"], 2);
  EXPECT_EQ(json["layer"]["ep"], 3) << "the nodes of one stage";
  EXPECT_EQ(json["micro_batches_in_flight"], 2);
  EXPECT_EQ(json["memory_bytes"], 80.0 * (1 << 30));
  EXPECT_EQ(json["estimates"][0]["fits"], true);
}

// By hand: of two stages' four chunks of two layers the first stage has 2 + 2 + 1 passes of a chunk in flight, each of
// half a micro-batch's layers.
TEST_F(PlanningVerbs, VirtualStagesAreInDocuments) {
  const auto asked = [&](const std::string& verb, const std::string& stages, const std::string& chunks) {
    std::vector<std::string> flags{verb,
                                   "--model",
                                   "olmoe-1b-7b",
                                   "--cluster",
                                   "h100-8",
                                   "--layers",
                                   "8",
                                   "--nearest",
                                   "--pp",
                                   stages,
                                   "--micro-batches",
                                   "8",
                                   "--pipeline",
                                   "1f1b",
                                   "--virtual-stages",
                                   chunks};
    if (verb == "simulate") flags.insert(flags.end(), {"--schedule", "tutel"});
    if (verb == "memory") std::erase(flags, "--nearest");
    if (verb == "simulate") flags.emplace_back("--quiet");
    return json_of(flags);
  };
  const Json memory = asked("memory", "2", "2");
  EXPECT_EQ(memory["virtual_stages"], 2);
  EXPECT_EQ(memory["micro_batches_in_flight"], 2.5);
  const Json interleaved = asked("simulate", "2", "2"), plain = asked("simulate", "2", "1");
  EXPECT_EQ(interleaved["virtual_stages"], 2);
  EXPECT_EQ(plain["virtual_stages"], 1);
  EXPECT_LT(interleaved["schedules"][0]["total_s"].get<double>(), plain["schedules"][0]["total_s"].get<double>());
}

TEST_F(PlanningVerbs, MemoryOfALayerFileOnAClusterWithoutMemory) {
  const std::string cluster =
      file("c.toml", "schema = 1\nname = \"c\"\nsource = \"test\"\n[topology]\nnodes = 8\nranks_per_node = 4\n");
  const Json json = json_of({"memory", "--layer", "example", "--cluster", cluster});
  EXPECT_TRUE(json["model"].is_null());
  EXPECT_TRUE(json["memory_bytes"].is_null());
  EXPECT_TRUE(json["estimates"][2]["fits"].is_null());
  const Printed text = run({"memory", "--layer", "example", "--cluster", cluster});
  EXPECT_NE(text.out.find("c has no memory of a rank"), std::string::npos) << text.out;
}

TEST_F(PlanningVerbs, AGridRowThatDoesNotFitIsUnsupportedAndNoError) {
  const auto tune = [&](const std::string& bytes) {
    const std::string cluster =
        file("small.toml",
             "schema = 1\nname = \"small\"\nsource = \"test\"\n[topology]\nnodes = 8\nranks_per_node = 4\n"
             "memory_bytes = " +
                 bytes + "\n");
    return json_of({"tune", "--no-verify", "--cluster", cluster, "--grid", "fsmoe-b", "--schedule", "ds-moe",
                    "--overwrite"})["layers"];
  };
  int misfits = 0;
  for (const Json& row : tune("1073741824")) {
    EXPECT_EQ(row["status"], "unsupported");
    misfits += row["reason"].get<std::string>().starts_with("does not fit: needs ");
  }
  const Printed text =
      run({"tune", "--no-verify", "--cluster", "./small.toml", "--grid", "fsmoe-b", "--schedule", "ds-moe"});
  EXPECT_NE(text.out.find(fmt::format("unsupported, {} layers: does not fit\n", misfits)), std::string::npos)
      << text.out;
  EXPECT_GT(misfits, 0);
  EXPECT_LT(misfits, 1458) << "the small ones do fit, and then lack a price";
  for (const Json& row : tune("1e15"))
    EXPECT_EQ(row["reason"].get<std::string>().find("does not fit"), std::string::npos);
}

TEST_F(PlanningVerbs, ParmsLayersAreCountedBesideThePrintedNumber) {
  const Json json = json_of({"memory", "--parm"});
  const Json &all = json["table3"], &some = json["table4_groups"];
  EXPECT_EQ(all["printed"], 1296);
  EXPECT_EQ(all["columns"], (std::vector<std::string>{"parm-a P8", "parm-b P8", "parm-b P16", "parm-b P32"}));
  EXPECT_EQ(all["layers"], (std::vector<int>(4, 9 * 3 * 3 * 9 * 2)));
  EXPECT_EQ(some["layers"], (std::vector<int>(4, 4 * 3 * 3 * 9 * 2)));
  EXPECT_EQ(all["counts"].size(), 8u);
  for (const Json& way : all["counts"]) {
    EXPECT_LE(way["total"].get<int>(), 4 * 1458);
    EXPECT_GT(way["fits"][0], way["fits"][1]) << "24 GB hold more than 11";
    const bool is_stated =
        way["activations_model"] == "counted" && way["optimizer"] == true && way["baseline"] == false;
    for (const size_t ranks : {1, 2, 3})
      EXPECT_TRUE(!is_stated || way["fits"][ranks] == 1296) << "as the reproduction's page says";
  }
  const Json doubled = json_of({"memory", "--parm", "--top-k", "1"});
  for (size_t i = 0; i < 8; ++i) EXPECT_LT(all["counts"][i]["total"], doubled["table3"]["counts"][i]["total"]) << i;
}

TEST_F(PlanningVerbs, PlacementAsText) {
  const Printed printed = run({"placement", "--tp", "2", "--ep", "2", "--cp", "4", "--dp", "2", "--switch-ports", "4",
                               "--ranks-per-node", "2"});
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_EQ(printed.out, R"(vertical: cp 4 >= ep 2: EP inside CP, on max(ep, cp) = 4 of the switch's 4 ports
16 ranks in the order [TP/SP, EP, CP, PP, DP], TP/SP fastest

  group  size  stride  groups  network  ranks
  -----  ----  ------  ------  -------  ----------------------
  TP/SP     2       1       8  intra    [0-1] [2-3] ..
  EP        2       2       8  inter    [0 2] [1 3] ..
  CP        4       2       4  inter    [0 2 4 6] [1 3 5 7] ..
  PP        1       8      16  none     [0] [1] ..
  DP        2       8       8  inter    [0 8] [1 9] ..

an EP group trains 1 sequence at once
gradients are summed over 8 ranks (dense) and 4 (an expert's)
traffic that meets between nodes: EP before CP before DP
what can meet, where gradients or pipeline sends are asynchronous:
  backward  EP AlltoAll and DP's AllReduce of the experts' W1 and W3 gradients
  backward  CP exchange of keys and values and DP's AllReduce of the post-attention linear's gradient
)");
}

TEST_F(PlanningVerbs, PlacementAsJson) {
  const Json json = json_of({"placement"});
  EXPECT_EQ(json["expansion"], "horizontal");
  EXPECT_EQ(json["ranks"], 256);
  ASSERT_EQ(json["order"].size(), 5u);
  EXPECT_EQ(json["order"][1]["name"], "EP");
  EXPECT_EQ(json["order"][1]["groups"][1], (std::vector<int>{1, 9, 17, 25, 33, 41, 49, 57}));
  EXPECT_EQ(json["order"][2]["groups"][0], (std::vector<int>{0, 64, 128, 192}));
  EXPECT_EQ(json["traffic_priority"], (std::vector<std::string>{"EP", "CP", "DP"})) << "PP is 1";
}

TEST_F(PlanningVerbs, WhatThePaperLeavesOpenIsSaid) {
  const Json json = json_of({"placement", "--ep", "8", "--cp", "4", "--switch-ports", "31"});
  EXPECT_EQ(json["expansion"], "open");
  EXPECT_EQ(json["ports_needed"], 32);
  EXPECT_TRUE(json["ranks"].is_null());
  EXPECT_TRUE(json["order"].empty());
  EXPECT_NE(json["reason"].get<std::string>().find("the paper does not say"), std::string::npos);
}

TEST_F(PlanningVerbs, ListSaysOfEachFileWhatItIs) {
  const Json json = json_of({"list"});
  for (const char* kind : {"clusters", "grids", "layers", "models"}) {
    ASSERT_FALSE(json[kind].empty()) << kind;
    for (const Json& row : json[kind]) {
      const std::string summary = row["summary"];
      EXPECT_EQ(summary.find("configs/"), std::string::npos) << summary;
      EXPECT_NE(summary, "its file names no source") << row["name"];
    }
  }
  const auto summary = [&](const char* kind, const char* name) -> std::string {
    for (const Json& row : json[kind])
      if (row["name"] == name) return row["summary"];
    return "no such row";
  };
  EXPECT_EQ(summary("clusters", "testbed-b"), "8 nodes x 4 RTX 2080 Ti, 100 Gb/s; FSMoE, Fig. 5");
  EXPECT_EQ(summary("models", "mixtral-7b"), "32 layers, M 4096, 8 experts of H 14336 (mixtral), k 2, L 4096, float32");
  EXPECT_TRUE(summary("models", "mixtral-7b@fsmoe").find("an expert a node of H 14336") != std::string::npos);
  const Printed text = run({"list"});
  size_t begin = 0;
  for (size_t end; (end = text.out.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 122u) << text.out.substr(begin, end - begin);
}

struct Malformed {
  std::vector<std::string> arguments;
  std::vector<std::string> expected;  // parts of the one line
};

TEST_F(PlanningVerbs, WhatCannotBeUsedIsOneLineAndExitCode2) {
  file("model.toml", "schema = 1\nname = \"m\"\nsource = \"s\"\nlayers = 2\ndepth = 3\n");
  file("cluster.toml",
       "schema = 1\nname = \"c\"\nsource = \"s\"\n[topology]\nnodes = 1\nranks_per_node = 1\nmemory_bytes = 0\n");
  const std::vector<Malformed> rows{
      {{"memory", "--model", "gpt5"},
       {"model: found 'gpt5'", "gpt2-xl, gpt2-xl@fsmoe, kimi-k2, mixtral-22b, mixtral-22b@fsmoe, mixtral-7b"}},
      {{"memory", "--model", "./model.toml"}, {"./model.toml:5: depth: found unknown key 'depth'"}},
      {{"memory", "--model", "gpt-2", "--layer", "example"}, {"--model", "--layer"}},
      {{"memory", "--cluster", "./cluster.toml"}, {"./cluster.toml:7: topology.memory_bytes: found 0", "> 0"}},
      {{"memory", "--zero", "4"}, {"--zero", "'4'", "0 to 3"}},
      {{"memory", "--layers", "0"}, {"--layers", "'0'", "whole number"}},
      {{"memory", "--micro-batches", "none"}, {"--micro-batches", "'none'", "whole number"}},
      {{"memory", "--recompute", "some"}, {"--recompute", "'some'", "none, selective, full"}},
      {{"memory", "--offload", "all"}, {"--offload", "'all'", "none, experts"}},
      {{"memory", "--offload", "experts", "--ffn", "mixtral-fp8"}, {"offload: found experts of ffn mixtral-fp8"}},
      {{"memory", "--model", "mixtral-7b", "--framework", "megatron", "--offload", "experts"},
       {"cannot offload only the experts"}},
      {{"simulate", "--offload", "experts"}, {"offload: found experts of a layer alone, expected none, or layers of"}},
      {{"simulate", "--model", "gpt-2", "--offload", "experts", "--schedule", "tutel"},
       {"no price for host_copy, a copy between host and device, by which experts are offloaded"}},
      {{"memory", "--pipeline", "zb"}, {"--pipeline", "'zb'", "gpipe, 1f1b"}},
      {{"memory", "--virtual-stages", "0"}, {"--virtual-stages", "'0'", "whole number"}},
      {{"memory", "--layers", "4", "--micro-batches", "2", "--virtual-stages", "2"},
       {"--virtual-stages: found 2 on one pipeline stage, expected --pp N with it"}},
      {{"memory", "--ep", "2", "--ep", "4"}, {"--ep: found 2 values (2, 4), expected one\n"}},
      {{"memory", "--layers"}, {"--layers: found no value, expected N\n"}},
      {{"memory", "--layers", "--json"}, {"--layers: found "}},
      {{"memory", "--layers", "6", "--pp", "2", "--micro-batches", "2", "--virtual-stages", "2"},
       {"--virtual-stages: found 2 with 6 layers over 2 stages, expected a multiple of 4 layers"}},
      {{"memory", "--layers", "4", "--pp", "2", "--micro-batches", "3", "--virtual-stages", "2"},
       {"--virtual-stages: found 2 with 3 micro-batches over 2 stages, expected a multiple of 2 micro-batches"}},
      {{"memory", "--layers", "4", "--pp", "2", "--micro-batches", "2", "--virtual-stages", "2", "--pipeline", "gpipe"},
       {"--virtual-stages: found 2 with the order gpipe, expected 1f1b"}},
      {{"memory", "--memory-gib", "-1"}, {"--memory-gib", "'-1'"}},
      {{"memory", "--pp", "2"}, {"layers = 1 over pp = 2"}},
      {{"memory", "--parm", "--model", "gpt-2"}, {"--parm", "--model"}},
      {{"memory", "--parm", "--batch", "2"}, {"--parm", "--batch"}},
      {{"memory", "--parm", "--zero", "1"}, {"--parm", "--zero"}},
      {{"memory", "--heads", "3"}, {"heads = 3", "model-dim"}},
      {{"placement", "--ep", "0"}, {"--ep", "'0'", "whole number"}},
      {{"placement", "--tp", "3"}, {"tp = 3", "ranks per node = 8"}},
      {{"placement", "--switch-ports", "many"}, {"--switch-ports", "'many'"}},
      {{"placement", "--ep", "1000000", "--cp", "1000000"}, {"1000000", "at most 1048576 ranks"}},
      {{"placement", "--sp", "2"}, {"--sp"}},
  };
  for (const Malformed& row : rows) {
    const std::string asked = fmt::format("{}", fmt::join(row.arguments, " "));
    const Printed printed = run(row.arguments);
    EXPECT_EQ(printed.exit_code, 2) << asked << "\n" << printed.err;
    EXPECT_EQ(std::count(printed.err.begin(), printed.err.end(), '\n'), 1) << asked << "\n" << printed.err;
    EXPECT_TRUE(printed.out.empty()) << asked << "\n" << printed.out;
    for (const std::string& part : row.expected)
      EXPECT_NE(printed.err.find(part), std::string::npos) << asked << ": expected '" << part << "' in\n"
                                                           << printed.err;
  }
}

}  // namespace
}  // namespace moe
