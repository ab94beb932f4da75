// The command line as a user meets it: exit codes, one clear line for what can't be used, JSON and nothing else.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "moe/record/reader.h"
#include "tests/commands/cli/program_test.h"

namespace moe {
namespace {

using Json = nlohmann::json;

using Cli = ProgramTest;

const std::vector<std::string> kGolden{"simulate",
                                       "--cluster",
                                       "fsmoe-optimiser",
                                       "--schedule",
                                       "fsmoe",
                                       "--batch",
                                       "4",
                                       "--seq",
                                       "1024",
                                       "--model-dim",
                                       "4096",
                                       "--hidden",
                                       "14336",
                                       "--heads",
                                       "32",
                                       "--experts",
                                       "4",
                                       "--top-k",
                                       "2",
                                       "--capacity-factor",
                                       "1.2",
                                       "--capacity-rounding",
                                       "exact",
                                       "--ffn",
                                       "mixtral",
                                       "--mp",
                                       "8",
                                       "--esp",
                                       "8",
                                       "--ep",
                                       "4",
                                       "--json",
                                       "--degree-forward"};

// The figures of the authors' optimiser (FSMoE, 4 nodes x 8); 12 is the integer optimum.
TEST_F(Cli, GoldenCommand) {
  const std::vector<std::tuple<std::string, int, double>> rows{
      {"1", 1, 86.2269e-3}, {"2", 2, 64.1200e-3}, {"4", 4, 59.7008e-3}, {"8", 8, 57.8623e-3}, {"0", 12, 57.5793e-3}};
  for (const auto& [asked, degree, seconds] : rows) {
    std::vector<std::string> arguments = kGolden;
    arguments.push_back(asked);
    const Printed printed = run(arguments);
    ASSERT_EQ(printed.exit_code, 0) << printed.err;
    const Json json = Json::parse(printed.out);
    EXPECT_EQ(json["degree_forward"], degree);
    EXPECT_NEAR(json["moe_forward_s"].get<double>(), seconds, 0.5e-7);
  }
}

TEST_F(Cli, SimulateJsonHasThePromisedKeys) {
  const Printed printed = run({"simulate", "--schedule", "fsmoe", "--json", "--trace", "t.json"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const Json json = Json::parse(printed.out);
  for (const char* key : {"schedule", "degree_forward", "degree_backward", "forward_s", "backward_s", "moe_forward_s",
                          "moe_backward_s", "gar_in_moe_bytes", "bound_s", "lanes", "tasks"})
    EXPECT_TRUE(json.contains(key)) << key;
  const double forward = json["forward_s"], total = forward + json["backward_s"].get<double>();
  double last = 0;
  for (const Json& task : json["tasks"]) {
    for (const char* key : {"name", "phase", "layer", "chunk", "lane", "start_s", "end_s"})
      EXPECT_TRUE(task.contains(key)) << key;
    if (task["phase"] == "backward") {
      EXPECT_GE(task["start_s"].get<double>(), forward * (1 - 1e-12));
    }
    last = std::max(last, task["end_s"].get<double>());
  }
  EXPECT_NEAR(last, total, 1e-12);
  EXPECT_LE(json["bound_s"].get<double>(), total);
  std::ifstream trace(folder_ + "/t.json");
  EXPECT_FALSE(Json::parse(trace)["traceEvents"].empty());
}

TEST_F(Cli, PlannedTuneHasARowForEachLayerAndSchedule) {
  const Printed printed = run({"tune", "--no-verify", "--json"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const Json json = Json::parse(printed.out);
  ASSERT_EQ(json["layers"].size(), 1458U);
  for (const Json& layer : json["layers"]) ASSERT_EQ(layer["schedules"].size(), 25U);
  const std::string path = folder_ + "/results/plan-testbed-b.jsonl";
  const moe::Run recorded = read_last_run(path);
  EXPECT_TRUE(recorded.ended);
  ASSERT_EQ(recorded.cases.size(), 1458U * 25 + 1);
  EXPECT_EQ(recorded.cases.back().key, "answer/fsmoe-b");
  EXPECT_EQ(recorded.cases.front().parameters.whole("seq", path), 256);
  EXPECT_LT(std::filesystem::file_size(path), 10'000'000U);
}

TEST_F(Cli, AGridRowThatCannotBePricedIsUnsupportedAndNoError) {
  file("cluster.toml",
       "schema = 1\nname = \"c\"\nsource = \"test\"\n[topology]\nnodes = 8\nranks_per_node = 4\n[[compute]]\nop = "
       "\"gemm\"\n"
       "dtype = \"float32\"\nalpha_s = 1e-5\nbeta_s_per_flop = 1e-14\n");
  const Printed printed = run({"tune", "--no-verify", "--cluster", "./cluster.toml", "--grid", "fsmoe-b", "--json"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const Json json = Json::parse(printed.out);
  EXPECT_EQ(json["layers"][0]["status"], "unsupported");
  EXPECT_NE(json["layers"][0]["reason"].get<std::string>().find("no allgather row for 4 ranks"), std::string::npos);
}

TEST_F(Cli, EveryVerbHasHelpWithAnExample) {
  std::istringstream verbs(run({"--complete", "moetune "}).out);
  int walked = 0;
  for (std::string verb; verbs >> verb; ++walked) {
    const Printed printed = run({verb, "--help"});
    EXPECT_EQ(printed.exit_code, 0);
    EXPECT_NE(printed.out.find("example:\n  ./moetune " + verb), std::string::npos) << printed.out;
  }
  EXPECT_GE(walked, 20);
}

TEST_F(Cli, ListIsCompleteAsJson) {
  const Printed printed = run({"list", "--json"});
  ASSERT_EQ(printed.exit_code, 0);
  const Json json = Json::parse(printed.out);
  for (const char* key : {"schedules", "clusters", "grids", "layers", "models", "papers", "gates", "orders",
                          "dispatchers", "hooks", "ffns"})
    EXPECT_FALSE(json[key].empty()) << key;
}

struct Malformed {
  std::vector<std::string> arguments;
  std::vector<std::string> expected;  // parts of the one line
};

TEST_F(Cli, NoFlagTakesAnotherFlagForItsValue) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> rows{
      {{"simulate", "--cluster=", "--wide"}, "moetune: --cluster: found an empty value after =, expected a value\n"},
      {{"simulate", "--out=", "--overwrite"}, "moetune: --out: found an empty value after =, expected a value\n"},
      {{"simulate", "--out", "--overwrite"},
       "moetune: --out: found the flag --overwrite instead of a value, expected a value\n"},
      {{"tune", "--no-verify", "--batch", "1", "--current", "tutel:2,mp"},
       "moetune: --current: found 'mp', expected mp=VALUE\n"}};
  for (const auto& [words, line] : rows) {
    const Printed printed = run(words);
    EXPECT_EQ(printed.exit_code, 2);
    EXPECT_EQ(printed.err, line);
  }
  EXPECT_FALSE(std::filesystem::exists("--overwrite"));
}

TEST_F(Cli, StragglersAndRoutingTracesAreChecked) {
  const Printed straggler = run({"simulate", "--straggler", "0:1e308"});
  EXPECT_EQ(straggler.exit_code, 2);
  EXPECT_NE(straggler.err.find("expected one above 0 and at most 1000"), std::string::npos) << straggler.err;
  EXPECT_EQ(run({"simulate", "--straggler", "0:1000"}).exit_code, 0);
  const Printed trace = run({"simulate", "--serve", "--routing", "/nope"});
  EXPECT_EQ(trace.exit_code, 2);
  EXPECT_NE(trace.err.find("/nope: found no readable file, expected a routing trace"), std::string::npos) << trace.err;
}

TEST_F(Cli, PrintedMeansBesideASampleSayTheirLayers) {
  EXPECT_NE(run({"tune", "--no-verify", "--grid", "fsmoe-30-b", "--wide"}).out.find("paper (1458 layers)"),
            std::string::npos);
}

TEST_F(Cli, HelpKeepsDefaultsApartFromSyntax) {
  const Printed help = run({"compare", "--help"});
  EXPECT_EQ(help.out.find("NAME=family"), std::string::npos);
  EXPECT_NE(help.out.find("default: family"), std::string::npos) << help.out;
}

TEST_F(Cli, WhatCannotBeUsedIsOneLineAndExitCode2) {
  file("empty.jsonl", "");
  file("text.jsonl", "hello\n");
  file("profile.toml",
       "schema = 1\nname = \"x\"\nsource = \"s\"\nspeed = 3\n[topology]\nnodes = 1\nranks_per_node = 1\n");
  const std::vector<Malformed> rows{
      {{}, {"verb: found none", "list, doctor, tune, simulate, fit, memory"}},
      {{"tuna"}, {"verb", "'tuna'", "list, doctor, tune, simulate"}},
      {{"list", "--fast"}, {"--fast"}},
      {{"simualte"}, {"'simualte'", "did you mean 'simulate'?"}},
      {{"simulate", "--shedule", "fsmoe"}, {"--shedule", "did you mean '--schedule'?"}},
      {{"simulate", "--cluster", "testbed-a", "--nodez", "2", "more"}, {"simulate: found '--nodez'"}},
      {{"list", "shapes", "more"}, {"list: found 'shapes'"}},
      {{"--nosuch"}, {"verb: found '--nosuch', expected one of: list"}},
      {{"--json", "list"}, {"list: found '--json' outside its flags"}},
      {{"list", "--", "x"}, {"list: found 'x' outside its flags"}},
      {{"tune", "--output", "x.jsonl"}, {"'--output' is '--out' here"}},
      {{"launch", "--ranks", "2", "tune"}, {"launch: found 'tune', expected -- before"}},
      {{"simulate", "--tp", "2"}, {"--tp", "; '--tp' is '--mp' here"}},
      {{"simulate", "--tensor-model-parallel-size=2"}, {"is '--mp' here"}},
      {{"simulate", "--num-microbatches", "2"}, {"is '--micro-batches' here"}},
      {{"simulate", "--schedule", "fsmo"}, {"unknown 'fsmo'", "did you mean 'fsmoe'?"}},
      {{"simulate", "--cluster", "testbed"}, {"'testbed'", "did you mean 'testbed-a' or 'testbed-b'?"}},
      {{"simulate", "--cluster", "deepep"}, {"did you mean 'h100-deepep-1-node', 'h100-deepep-2-nodes' or "}},
      {{"simulate", "--model", "mixtral"}, {"'mixtral'", "did you mean 'mixtral-7b', 'mixtral-22b' or "}},
      {{"tune", "--no-verify", "--grid", "fsmoe-30"}, {"did you mean 'fsmoe-"}},
      {{"simulate", "--schedule", "interleaved"}, {"did you mean 'fsmoe-interleaved'?"}},
      {{"simulate", "--micro", "2"}, {"did you mean '--micro-batches' or '--micro-op-bytes'?"}},
      {{"modelbnch"}, {"did you mean 'modelbench'?"}},
      {{"simulate", "--batch", "0"}, {"--batch", "'0'", "whole number"}},
      {{"simulate", "--batch", "-4"}, {"--batch", "'-4'", "whole number"}},
      {{"simulate", "--batch", "four"}, {"--batch", "'four'", "whole number"}},
      {{"simulate", "--batch", "1.5"}, {"--batch", "'1.5'", "whole number"}},
      {{"simulate", "--batch", "99999999999999999999"}, {"--batch", "whole number"}},
      {{"simulate", "--batch"}, {"--batch"}},
      {{"simulate", "--seq", ""}, {"--seq", "''"}},
      {{"simulate", "--heads", "3"}, {"heads = 3", "model-dim"}},
      {{"simulate", "--heads", "2", "--mp", "4"}, {"heads", "mp"}},
      {{"simulate", "--top-k", "9"}, {"top-k", "9", "experts"}},
      {{"simulate", "--hidden", "4095", "--esp", "4"}, {"esp", "hidden"}},
      {{"simulate", "--mp", "5"}, {"mp", "5"}},
      {{"simulate", "--dp", "3"}, {"dp x mp"}},
      {{"simulate", "--ep", "3"}, {"ep x esp"}},
      {{"simulate", "--experts", "12", "--ep", "8"}, {"ep", "experts = 12"}},
      {{"simulate", "--kv-heads", "5"}, {"kv-heads", "heads"}},
      {{"simulate", "--capacity-factor", "0"}, {"--capacity-factor", "'0'", "> 0"}},
      {{"simulate", "--capacity-factor", "nan"}, {"--capacity-factor", "'nan'"}},
      {{"simulate", "--capacity-factor", "1.2x"}, {"--capacity-factor", "'1.2x'"}},
      {{"simulate", "--capacity-rounding", "up"}, {"--capacity-rounding", "'up'", "ragged, exact"}},
      {{"simulate", "--ffn", "swiglu"}, {"--ffn", "'swiglu'", "gpt, mixtral"}},
      {{"simulate", "--gate", "random"}, {"--gate", "'random'", "gshard"}},
      {{"simulate", "--order", "sorted"}, {"--order", "'sorted'", "tutel"}},
      {{"simulate", "--dispatcher", "3dh"}, {"--dispatcher", "'3dh'", "alltoall"}},
      {{"simulate", "--hook", "fp8"}, {"--hook", "'fp8'", "none, bf16"}},
      {{"simulate", "--dtype", "float8"}, {"--dtype", "'float8'", "float32"}},
      {{"simulate", "--dtype", "float64"}, {"no gemm row for float64"}},
      {{"simulate", "--schedule", "fsmo"},
       {"--schedule", "'fsmo'", "ds-moe, ds-moe-replicated, tutel, tutel-improved"}},
      {{"simulate", "--schedule", "tutel", "--degree-forward", "2", "--degree-backward", "3"}, {"tutel", "2", "3"}},
      {{"simulate", "--schedule", "ds-moe", "--degree-forward", "2"}, {"ds-moe", "found degrees 2 and 0, expected 1"}},
      {{"simulate", "--degree-forward", "-1"}, {"--degree-forward", "'-1'"}},
      {{"simulate", "--cluster", "testbed-c"}, {"testbed-c", "testbed-a", "testbed-b"}},
      {{"simulate", "--cluster", "./none.toml"}, {"./none.toml"}},
      {{"simulate", "--cluster", "./profile.toml"}, {"profile.toml:4", "speed"}},
      {{"simulate", "--cluster", "host"}, {"--cluster", "host", "microbench", "fit"}},
      {{"memory", "--cluster", "host"}, {"--cluster", "host", "microbench", "fit"}},
      {{"tune", "--no-verify", "--cluster", "host"}, {"--cluster", "host", "microbench", "fit"}},
      {{"simulate", "--layers", "2", "--out", "o"}, {"--out", "--layers"}},
      {{"simulate", "--model", "gpt-2", "--straggler", "9999:5"}, {"--straggler", "9999"}},
      {{"simulate", "--layer", "./none.toml"}, {"./none.toml"}},
      {{"simulate", "--ep", "4", "--experts", "8"}, {"no alltoall row for 4 ranks", "8 ranks", "--nearest"}},
      {{"simulate", "--trace", "/nonexistent/t.json"}, {"--trace", "/nonexistent/t.json"}},
      {{"tune", "--no-verify", "--grid", "fsmoe-c"}, {"fsmoe-c", "fsmoe-a", "fsmoe-b"}},
      {{"tune", "--no-verify", "--model", "gpt2-xl", "--grid", "fsmoe-b"}, {"--grid", "fsmoe-b", "a model"}},
      {{"tune", "--no-verify", "--model", "gpt2-xl", "--current", "tutel:0"}, {"--current", "'tutel:0'", ":R_F:R_B"}},
      {{"tune", "--no-verify", "--grid", "fsmoe-b", "--current", "tutel"}, {"--current", "--model"}},
      {{"tune", "--backend", "mpi"}, {"--backend", "'mpi'", "local"}},
      {{"microbench", "-b", "12T"}, {"-b", "'12T'"}},
      {{"microbench", "-f", "1"}, {"-f", "'1'"}},
      {{"microbench", "-c", "2"}, {"-c", "'2'"}},
      {{"microbench", "--device", "tpu"}, {"--device", "'tpu'", "cpu, cuda"}},
      {{"launch"}, {"launch", "no command", "--"}},
      {{"launch", "--ranks", "0", "--", "tune"}, {"--ranks", "'0'"}},
      {{"launch", "--", "list"}, {"launch", "'list'", "tune, microbench, layerbench, modelbench"}},
      {{"launch", "--", "layerbench", "--backend", "local"}, {"--backend", "local", "processes"}},
      {{"launch", "--", "layerbench", "--batch", "none"}, {"--batch", "'none'"}},
      {{"launch", "layerbench"}, {"layerbench"}},
      {{"tune", "--timeout", "0"}, {"--timeout", "'0'"}},
      {{"tune", "--iterations", "0"}, {"--iterations", "'0'"}},
      {{"tune", "--measure", "some"}, {"--measure", "'some'"}},
      {{"tune", "--measure", "0"}, {"--measure", "'0'"}},
      {{"tune", "--measure", "all", "--no-verify"}, {"--measure", "--no-verify"}},
      {{"tune", "--measure-degrees"}, {"--measure-degrees", "--measure all"}},
      {{"microbench", "--repetitions", "many"}, {"--repetitions", "'many'"}},
      {{"fit", "--records", "none.jsonl"}, {"none.jsonl"}},
      {{"fit", "--records", "empty.jsonl"}, {"empty.jsonl"}},
      {{"fit", "--records", "text.jsonl"}, {"text.jsonl:1"}},
  };
  for (const Malformed& row : rows) {
    std::string asked;
    for (const std::string& argument : row.arguments) asked += " " + argument;
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
