// `simulate` as a user meets it: rows of what is refused, defaults, noise.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/commands/cli/program_test.h"

namespace moe {
namespace {

using Json = nlohmann::json;

using SimulateVerb = ProgramTest;

// Whatever of the schedules is refused: several asked for are a list of rows, one is the document.
TEST_F(SimulateVerb, SimulateJsonKeepsItsShapeWhereSchedulesAreRefused) {
  const auto rows_of = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "simulate");
    arguments.push_back("--json");
    const Printed printed = run(arguments);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    return Json::parse(printed.out)["schedules"];
  };
  const auto expect = [](const Json& rows, size_t count, const std::vector<std::string>& refused) {
    ASSERT_EQ(rows.size(), count);
    for (const Json& row : rows) {
      const bool is_refused = std::ranges::count(refused, row["schedule"].get<std::string>()) > 0;
      EXPECT_EQ(row["status"], is_refused ? "unsupported" : "ok") << row["schedule"];
      EXPECT_EQ(row.contains("reason"), is_refused) << row["schedule"];
      EXPECT_EQ(row.contains("tasks"), !is_refused) << row["schedule"];
    }
  };
  for (const std::vector<std::string>& model : {std::vector<std::string>{}, {"--layers", "2"}}) {
    const auto with = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.end(), model.begin(), model.end());
      return rows_of(arguments);
    };
    expect(with({"--schedule", "ds-moe,fsmoe"}), 2, {});
    expect(with({"--schedule", "ds-moe,fsmoe", "--degree-forward", "2"}), 2, {"ds-moe"});
    expect(with({"--schedule", "tutel,ds-moe,fsmoe", "--degree-forward", "2", "--degree-backward", "3"}), 3,
           {"tutel", "ds-moe"});
  }
  const Json all = rows_of({"--schedule", "all", "--degree-forward", "2"});
  ASSERT_EQ(all.size(), 25U);
  EXPECT_EQ(std::ranges::count(all, "unsupported", [](const Json& row) { return row["status"].get<std::string>(); }),
            std::ranges::count_if(all, [](const Json& row) { return row.contains("reason"); }));
  const Printed text = run({"simulate", "--schedule", "ds-moe,fsmoe", "--degree-forward", "2"});
  EXPECT_NE(text.out.find("ds-moe: unsupported: found degrees"), std::string::npos) << text.out;
  const Printed one = run({"simulate", "--schedule", "fsmoe", "--degree-forward", "2", "--json"});
  EXPECT_EQ(Json::parse(one.out)["schedule"], "fsmoe");
}

// Without a cluster, one that has prices for it; the type of a layer that nobody describes is one that it computes in.
TEST_F(SimulateVerb, ServesWithoutAnyFlag) {
  const auto document = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"simulate", "--serve", "--batches", "4", "--layers", "4", "--json"});
    const Printed printed = run(arguments);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    return Json::parse(printed.out);
  };
  const Json plain = document({});
  EXPECT_EQ(plain["cluster"], "a100-8");
  EXPECT_EQ(plain["layer"]["dtype"], "bfloat16");
  const Json given = document({"--cluster", "testbed-b", "--nearest"});
  EXPECT_EQ(given["cluster"], "testbed-b");
  EXPECT_EQ(given["layer"]["dtype"], "float32");
  EXPECT_EQ(document({"--cluster", "h100-8", "--dtype", "float16"})["layer"]["dtype"], "float16");
  EXPECT_EQ(document({"--cluster", "h100-8", "--model", "mixtral-7b"})["layer"]["dtype"], "bfloat16");
  EXPECT_EQ(run({"simulate", "--serve", "--cluster", "testbed-b"}).exit_code, 2);
}

TEST_F(SimulateVerb, SimulateJsonIsADocumentWhereEveryScheduleIsRefused) {
  for (const std::vector<std::string>& model : {std::vector<std::string>{}, {"--layers", "2"}})
    for (const std::string schedules : {"ds-moe", "ds-moe,tutel"}) {
      std::vector<std::string> asked{"simulate", "--schedule",        schedules, "--degree-forward",
                                     "2",        "--degree-backward", "3",       "--json"};
      asked.insert(asked.end(), model.begin(), model.end());
      const Printed printed = run(asked);
      EXPECT_EQ(printed.exit_code, 2);
      EXPECT_EQ(std::ranges::count(printed.err, '\n'), 1) << printed.err;
      const Json document = Json::parse(printed.out);
      const Json rows = document.contains("schedules") ? document["schedules"] : Json::array({document});
      EXPECT_EQ(rows.size(), schedules == "ds-moe" ? 1U : 2U) << printed.out;
      for (const Json& row : rows) EXPECT_EQ(row["status"], "unsupported");
      EXPECT_NE(printed.err.find(rows[0]["reason"].get<std::string>()), std::string::npos) << printed.err;
    }
}

// A schedule of whole iterations has a row beside the others if there is more than one pass, on one stage.
TEST_F(SimulateVerb, IterationsAreOrdered) {
  const auto rows_of = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"simulate", "--json"});
    const Printed printed = run(flags);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    const Json document = Json::parse(printed.out);
    std::map<std::string, double> rows;
    for (const Json& row : document["schedules"]) rows[row["schedule"]] = row.value("total_s", 0.0);
    return rows;
  };
  const std::vector<std::string> stack{"--layers", "2", "--micro-batches", "3"};
  const std::map<std::string, double> rows = rows_of(stack);
  ASSERT_TRUE(rows.contains("wave"));
  EXPECT_LT(rows.at("wave"), rows.at("fsmoe-dw"));
  const auto named = [&](const char* schedules) {
    std::vector<std::string> flags = stack;
    flags.insert(flags.end(), {"--schedule", schedules});
    return rows_of(flags);
  };
  EXPECT_EQ(rows.size(), 9U);
  EXPECT_EQ(named("default"), rows);
  EXPECT_EQ(named("default,wave"), rows);
  const std::map<std::string, double> all = named("all");
  EXPECT_TRUE(std::ranges::includes(all, rows));
  EXPECT_TRUE(all.contains("monta-o1") && all.contains("lancet"));
  EXPECT_FALSE(rows.contains("monta-o1") || rows.contains("lancet"));
  EXPECT_TRUE(rows_of({"--layers", "2"}).contains("wave"));
  EXPECT_FALSE(rows_of({"--layers", "1"}).contains("wave"));
  EXPECT_FALSE(rows_of({}).contains("wave"));
  const auto stages = [](const char* micro_batches) -> std::vector<std::string> {
    return {"--cluster", "h100-8", "--dtype", "bfloat16",        "--layers",
            "2",         "--pp",   "2",       "--micro-batches", micro_batches};
  };
  const std::map<std::string, double> staged = rows_of(stages("3"));
  ASSERT_TRUE(staged.contains("wave"));
  EXPECT_LT(staged.at("wave"), staged.at("fsmoe-dw"));
  const auto expect_refused = [&](const Printed& printed, const std::string& reason) {
    EXPECT_EQ(printed.exit_code, 2);
    EXPECT_EQ(printed.err, "moetune: " + reason + "\n");
  };
  expect_refused(run({"simulate", "--schedule", "wave"}),
                 "schedule wave: found a layer alone, expected a model, whose passes it orders");
  expect_refused(run({"simulate", "--layers", "2", "--pp", "2", "--schedule", "flowmoe"}),
                 "schedule flowmoe: found 2 pipeline stages, expected 1");
  std::vector<std::string> long_ones = stages("1025");
  long_ones.insert(long_ones.begin(), "simulate");
  long_ones.insert(long_ones.end(), {"--schedule", "wave"});
  expect_refused(run(long_ones),
                 "schedule wave: found 2 layers of 1025 micro-batches on 2 stages, expected at most 2048 in all");
}

TEST_F(SimulateVerb, StderrHasWhatIsAskedFor) {
  const auto said = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"simulate", "--schedule", "fsmoe", "--nearest", "--ep", "4"});
    return run_program(MOETUNE_PROGRAM, flags, folder_).err;
  };
  const std::string note =
      "moetune: nearest: alltoall over 4 ranks priced by the row of 8 ranks\n"
      "moetune: excludes the gradient sums of experts over EDP = 2; tune adds them\n";
  EXPECT_EQ(said({"--quiet"}), "");
  EXPECT_EQ(said({}), note);
  const std::string all = said({"--verbose"});
  EXPECT_TRUE(all.starts_with("moetune: cluster testbed-b is /") && all.ends_with(note)) << all;
}

TEST_F(SimulateVerb, DefaultsOfGroupsAreThoseOfAModel) {
  for (const std::string cluster : {"testbed-a", "testbed-b"}) {
    const Printed a = run({"simulate", "--cluster", cluster, "--schedule", "fsmoe", "--nearest", "--json"});
    ASSERT_EQ(a.exit_code, 0) << a.err;
    for (const std::string stages : {"1", "2"}) {
      const Printed b = run({"memory", "--cluster", cluster, "--pp", stages, "--layers", stages, "--json"});
      ASSERT_EQ(b.exit_code, 0) << b.err;
      const Json layer = Json::parse(b.out)["layer"];
      if (stages == "1") {
        EXPECT_EQ(Json::parse(a.out)["layer"], layer) << cluster;
      }
      EXPECT_EQ(layer["ep"], (cluster == "testbed-a" ? 6 : 8) / std::stoi(stages));
    }
  }
}

// What describes a layer tells its records apart, though no price depends on it.
TEST_F(SimulateVerb, RecordsSayWhatTheLayerIs) {
  const auto parameters = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"simulate", "--schedule", "ds-moe", "-o", "r.jsonl"});
    std::filesystem::remove(folder_ + "/r.jsonl");
    const Printed printed = run(flags);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    std::ifstream records(folder_ + "/r.jsonl");
    for (std::string line; std::getline(records, line);)
      if (const Json record = Json::parse(line); record["kind"] == "case") return record["parameters"];
    return Json();
  };
  const Json plain = parameters({});
  const std::vector<std::string> latent{"--q-lora-rank",      "80", "--kv-lora-rank", "64", "--qk-nope-head-dim", "32",
                                        "--qk-rope-head-dim", "16", "--v-head-dim",   "24"};
  const std::vector<std::tuple<std::vector<std::string>, std::string, Json>> rows{
      {{"--no-residual"}, "residual", "no"},
      {{"--norm", "none"}, "norm", "none"},
      {{"--norm", "post-layernorm"}, "norm", "post-layernorm"},
      {{"--no-causal"}, "causal", "no"},
      {{"--bias"}, "bias", "yes"},
      {{"--ffn", "gpt-tanh"}, "ffn", "gpt-tanh"},
      {{"--aux-loss", "0.5"}, "aux_loss", 0.5},
      {{"--z-loss", "0.5"}, "z_loss", 0.5},
      {{"--head-dim", "96"}, "head_dim", 96},
      {{"--window", "96"}, "window", 96},
      {latent, "q_lora_rank", 80},
      {latent, "kv_lora_rank", 64},
      {latent, "qk_nope_head_dim", 32},
      {latent, "qk_rope_head_dim", 16},
      {latent, "v_head_dim", 24},
      {{"--rope-theta", "10000"}, "rope_theta", 10000},
      {{"--gate", "switch"}, "gate", "switch"},
      {{"--order", "gshard"}, "order", "gshard"},
      {{"--capacity-factor", "none"}, "capacity_factor", "none"}};
  for (const auto& [flags, name, value] : rows) {
    EXPECT_NE(plain[name], value) << name;
    EXPECT_EQ(parameters(flags)[name], value) << name;
  }
  EXPECT_EQ(plain["residual"], "yes");
  EXPECT_EQ(plain["placement"], "esp-inside");
}

TEST_F(SimulateVerb, NoiseIsOfModelsAndOfContentionToo) {
  std::string contended;
  std::ifstream in(MOETUNE_SOURCE_DIR "/configs/clusters/testbed-b.toml");
  contended.assign(std::istreambuf_iterator<char>(in), {});
  std::ofstream(folder_ + "/contended.toml")
      << contended + "\n[contention]\ninter_by_intra = 1.4\nintra_by_inter = 1.2\n";
  for (const std::string cluster : {"testbed-b", "./contended.toml"})
    for (const std::vector<std::string>& model :
         {std::vector<std::string>{}, {"--layers", "3", "--micro-batches", "2"}}) {
      std::vector<std::string> arguments{"simulate", "--cluster", cluster,     "--schedule", "fsmoe,lina-baseline",
                                         "--jitter", "0.05",      "--samples", "11",         "--straggler",
                                         "5:1.3",    "--seed",    "3",         "--json"};
      arguments.insert(arguments.end(), model.begin(), model.end());
      const Printed printed = run(arguments);
      ASSERT_EQ(printed.exit_code, 0) << printed.err;
      const Json document = Json::parse(printed.out);  // outlives the loop over its rows
      for (const Json& row : document["schedules"]) {
        EXPECT_EQ(row["noise"]["samples"], 11);
        EXPECT_GT(row["noise"]["median_s"], row["noise"]["even_s"]) << row["schedule"];
        EXPECT_GT(row["noise"]["mean_waiting_s"], 0) << row["schedule"];
      }
    }
}

// Steps of models, with dense layers at their ends or not, have popular experts in every MoE layer.
TEST_F(SimulateVerb, UnevenRoutingIsOfWholeStepsToo) {
  for (const std::vector<std::string>& model : {std::vector<std::string>{"qwen3-30b-a3b", "2"}, {"deepseek-v3", "5"}}) {
    const Printed printed = run({"simulate", "--model", model[0], "--layers", model[1], "--cluster", "h100-8",
                                 "--schedule", "tutel,fsmoe", "--capacity-factor", "none", "--zipf", "1", "--json"});
    ASSERT_EQ(printed.exit_code, 0) << printed.err;
    const Json document = Json::parse(printed.out);
    for (const Json& row : document["schedules"])
      EXPECT_GT(row["noise"]["median_s"], row["noise"]["even_s"]) << model[0] << ", " << row["schedule"];
  }
}

// "6 layers, 3 MoE": wherever a model is named.
TEST_F(SimulateVerb, DenseLayersOfAModelAreSaid) {
  const std::string text = "schema = 1\nname = \"some-dense\"\nsource = \"a test\"\nlayers = 6\nmoe_every = 2\n";
  const std::string layer = "[layer]\nseq = 256\nmodel_dim = 512\nhidden = 1024\nheads = 8\n";
  const std::string model = file("m.toml", text + "dense_hidden = 2048\n" + layer);
  const std::string said = "6 layers, 3 MoE of B4 L256 M512 H1024 E8 k2 f1.2 gpt and 3 dense of H2048";
  for (const std::string verb : {"simulate", "memory"}) {
    std::vector<std::string> asked{verb, "--model", model};
    if (verb == "simulate") asked.insert(asked.end(), {"--schedule", "fsmoe"});
    const Printed printed = run(asked);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    EXPECT_NE(printed.out.find(said), std::string::npos) << printed.out;
    const Json document = json_of(asked);
    EXPECT_EQ(document["dense_layers"], Json({0, 2, 4})) << verb;
    EXPECT_EQ(document["dense_hidden"], 2048) << verb;
  }
  const Json planned = json_of({"simulate", "--model", model, "--schedule", "fsmoe", "--layers", "4"});
  EXPECT_EQ(planned["dense_layers"], Json({0, 2}));
  std::vector<bool> none;
  for (const Json& backward : planned["schedules"][0]["backwards"]) none.push_back(backward["degree"].is_null());
  EXPECT_EQ(none, (std::vector<bool>{false, true, false, true})) << "the last layer first";
  const auto refused = [&](std::vector<std::string> flags, const std::string& message) {
    flags.insert(flags.begin(), "simulate");
    const Printed printed = run(flags);
    EXPECT_EQ(printed.exit_code, 2) << printed.out;
    EXPECT_NE(printed.err.find(message), std::string::npos) << printed.err;
    EXPECT_EQ(std::ranges::count(printed.err, '\n'), 1) << printed.err;
  };
  refused({"--model", model, "--layers", "1"}, "--layers: found 1, all of them dense, expected one with experts");
  refused({"--model", file("n.toml", text + layer)}, "n.toml:1: dense_hidden: found no such key");
  refused({"--model", file("o.toml", text + "dense_hidden = 2047\n" + layer)},
          "mp = 4 does not divide dense_hidden = 2047");
}

// A plan, and what is said of it, has the window of each layer; its file is read as the same plan.
TEST_F(SimulateVerb, WindowsOfSomeLayersArePlanned) {
  const auto model = [&](const std::string& pattern) {
    return file("w" + pattern + ".toml", "schema = 1\nname = \"some-windows\"\nsource = \"a test\"\nlayers = 6\n" +
                                             (pattern.empty() ? "" : "windowed_layers = \"" + pattern + "\"\n") +
                                             "[layer]\nseq = 256\nmodel_dim = 512\nhidden = 1024\nheads = 8\n"
                                             "window = 32\n");
  };
  const auto asked = [](const std::string& path, std::vector<std::string> more = {}) {
    std::vector<std::string> flags{"simulate", "--model", path, "--schedule", "fsmoe"};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  const std::string some = model("110");
  const Printed printed = run(asked(some));
  EXPECT_NE(printed.out.find("gpt, a window of 32 tokens in 4 of them"), std::string::npos) << printed.out;
  const auto seconds = [&](const std::vector<std::string>& flags) {
    return json_of(flags)["schedules"][0]["total_s"].get<double>();
  };
  EXPECT_EQ(json_of(asked(some))["windowed_layers"], "110110");
  EXPECT_EQ(json_of({"memory", "--model", some})["windowed_layers"], "110110");
  const double all_s = seconds(asked(model(""))), some_s = seconds(asked(some)),
               none_s = seconds(asked(some, {"--window", "0"}));
  EXPECT_NEAR(some_s, all_s + (none_s - all_s) / 3, 1e-2 * (none_s - all_s)) << "two of six";
  const Json cut = json_of(asked(some, {"--layers", "2"}));
  EXPECT_FALSE(cut.contains("windowed_layers")) << "both have a window";
  EXPECT_EQ(cut["layer"]["window"], 32);
  const Json whole = json_of(asked(model("01"), {"--layers", "1", "--micro-batches", "2"}));
  EXPECT_FALSE(whole.contains("windowed_layers") || whole["layer"].contains("window")) << "its layer has none";
  const std::vector<std::string> ring{"--mp", "1", "--cp", "2", "--cp-exchange", "ring", "--nearest", "--layers"};
  const auto in_ring = [&](const std::string& layers) {
    std::vector<std::string> flags = asked(model("01"), ring);
    flags.push_back(layers);
    return run(flags);
  };
  EXPECT_EQ(in_ring("1").exit_code, 0) << in_ring("1").err;
  EXPECT_EQ(in_ring("2").exit_code, 2);
  EXPECT_EQ(in_ring("2").err, "moetune: cp-exchange: found ring with window = 32, expected allgather or no window\n");
}

TEST_F(SimulateVerb, RingsHaveSeveralRanks) {
  const std::vector<std::string> ring{"simulate", "--nearest", "--schedule", "tutel", "--cp-exchange", "ring"};
  for (const std::vector<std::string>& ranks : {std::vector<std::string>{}, {"--cp", "1"}}) {
    std::vector<std::string> flags = ring;
    flags.insert(flags.end(), ranks.begin(), ranks.end());
    const Printed printed = run(flags);
    EXPECT_EQ(printed.exit_code, 2);
    EXPECT_EQ(printed.err, "moetune: --cp-exchange: found ring with one CP rank, expected --cp N with it\n");
  }
  const std::string layer = file("cp.toml", "schema = 1\nname = \"cp\"\n[parallel]\ncp = 2\n");
  std::vector<std::string> of_file = ring;
  of_file.insert(of_file.end(), {"--layer", layer});
  EXPECT_EQ(run(of_file).exit_code, 0) << run(of_file).err;
}

// GPT-2 and Mixtral name no type: they are planned in the only type that a cluster prices.
TEST_F(SimulateVerb, TypesThatNobodyChoseAreThoseOfTheCluster) {
  const auto dtype = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"simulate", "--json", "--schedule", "tutel", "--cluster"});
    const Printed printed = run(flags);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    return Json::parse(printed.out)["layer"]["dtype"].get<std::string>();
  };
  for (const std::string model : {"gpt2-xl", "mixtral-7b"}) {
    const std::vector<std::string> one{"--model", model, "--layers", "1"};
    const auto on = [&](std::vector<std::string> flags) {
      flags.insert(flags.end(), one.begin(), one.end());
      return dtype(flags);
    };
    EXPECT_EQ(on({"h100-8"}), "bfloat16");
    EXPECT_EQ(on({"h100-8", "--dtype", "float16"}), "float16");
    EXPECT_EQ(on({"testbed-b"}), "float32");
    EXPECT_EQ(on({"h100-8", "--nearest"}), "bfloat16");
  }
  EXPECT_EQ(dtype({"h100-8"}), "bfloat16") << "a layer";
  const std::string named = file("f32.toml", "schema = 1\nname = \"f32\"\ndtype = \"float32\"\n");
  EXPECT_EQ(dtype({"h100-8", "--nearest", "--layer", named}), "float32");
  EXPECT_EQ(run({"simulate", "--cluster", "h100-8", "--layer", named}).exit_code, 2);
  const Printed chosen = run({"simulate", "--cluster", "h100-8", "--dtype", "float32"});
  EXPECT_EQ(chosen.exit_code, 2);
  EXPECT_NE(chosen.err.find("no gemm row for float32"), std::string::npos) << chosen.err;
}

TEST_F(SimulateVerb, OneLayerLiesOnOneStage) {
  const Printed printed = run({"simulate", "--pp", "2", "--nearest", "--schedule", "tutel"});
  EXPECT_EQ(printed.exit_code, 2);
  EXPECT_EQ(printed.err, "moetune: --pp: found 2 stages for one layer in one micro-batch, expected --layers N\n");
}

TEST_F(SimulateVerb, ReplicatedExpertsSumsAreSaidToBeLeftOut) {
  const Printed printed = run({"simulate", "--hidden", "4097", "--nearest", "--schedule", "tutel"});
  EXPECT_EQ(printed.exit_code, 0);
  EXPECT_NE(printed.out.find("DP 8 MP 4 EP 8 ESP 1 PP 1"), std::string::npos) << printed.out;
  EXPECT_NE(printed.err.find("excludes the gradient sums of experts over EDP = 4"), std::string::npos) << printed.err;
}

TEST_F(SimulateVerb, WhatIsWrongWithALayersSizesNamesItsFile) {
  const std::string layer = file("l.toml", "schema = 1\nname = \"x\"\nsource = \"s\"\ntop_k = 9\nexperts = 8\n");
  const Printed printed = run({"simulate", "--layer", layer, "--schedule", "tutel"});
  EXPECT_EQ(printed.exit_code, 2);
  EXPECT_EQ(printed.err, "moetune: " + layer + ": top-k: found 9, expected 1 to experts = 8\n");
}

TEST_F(SimulateVerb, ValuesThatNobodyMeansAreRefusedInOneLine) {
  for (const std::string flag : {"--model", "--layer", "--cluster", "--plan", "--out", "--dtype"}) {
    const Printed printed = run({"simulate", flag, ""});
    EXPECT_EQ(printed.exit_code, 2) << flag;
    EXPECT_TRUE(printed.err.find(flag + ": found '', expected ") != std::string::npos) << printed.err;
  }
  const Printed printed = run({"simulate", "--dtype", "a\nb\x1b[31m"});
  EXPECT_EQ(printed.exit_code, 2);
  EXPECT_EQ(std::ranges::count(printed.err, '\n'), 1) << printed.err;
  EXPECT_EQ(printed.err.find('\x1b'), std::string::npos) << printed.err;
}

struct WrittenTimeline {
  int64_t tasks = 0;
  double mib = 0;
  std::set<int> layers, micro_batches;  // from 1
  std::string said;
};

// A viewer opens the timeline of any model at once; what that leaves out is said, and flags decide it.
TEST_F(SimulateVerb, ATimelineSaysItsSizeAndWhatItLeavesOut) {
  const auto timeline = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> words{"simulate",
                                   "--cluster",
                                   "h100-deepep-2-nodes",
                                   "--dtype",
                                   "bfloat16",
                                   "--schedule",
                                   "fsmoe",
                                   "--layers",
                                   "48",
                                   "--pp",
                                   "2",
                                   "--nearest",
                                   "--batch",
                                   "1",
                                   "--trace",
                                   "t.json",
                                   "--micro-batches",
                                   "20"};
    words.insert(words.end(), flags.begin(), flags.end());
    const Printed printed = run(words);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    WrittenTimeline written;
    written.said = printed.err;
    std::ifstream file(folder_ + "/t.json");
    const Json trace = Json::parse(file);
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      ++written.tasks;
      written.layers.insert(event["args"]["layer"].get<int>() + 1);
      if (event["args"]["phase"] != "step") written.micro_batches.insert(event["args"]["micro_batch"].get<int>());
    }
    written.mib = static_cast<double>(std::filesystem::file_size(folder_ + "/t.json")) / (1 << 20);
    const std::string size =
        written.mib < 1 ? fmt::format("{:.1f} KiB", 1024 * written.mib) : fmt::format("{:.1f} MiB", written.mib);
    EXPECT_NE(written.said.find(fmt::format("t.json: a timeline of {}, {} tasks", size, written.tasks)),
              std::string::npos)
        << written.said;
    return written;
  };
  const WrittenTimeline usual = timeline({}), all = timeline({"--trace-layers", "all", "--trace-micro-batches", "all"}),
                        few = timeline({"--trace-layers", "3", "--trace-micro-batches", "1"});
  EXPECT_LE(usual.tasks, 10'000);
  EXPECT_GT(usual.tasks, 2'000);
  EXPECT_LT(usual.mib, 8);
  EXPECT_NE(usual.said.find(fmt::format("it shows {} of 24 layers of a stage and {} of 20 micro-batches, the first",
                                        usual.layers.size() / 2, usual.micro_batches.size())),
            std::string::npos)
      << usual.said;
  EXPECT_EQ(few.layers, (std::set<int>{1, 2, 24, 25, 26, 48}));
  EXPECT_EQ(few.micro_batches, std::set<int>{1});
  EXPECT_EQ(all.layers.size(), 48u);
  EXPECT_EQ(all.micro_batches.size(), 20u);
  EXPECT_GT(all.tasks, 3 * usual.tasks);
  EXPECT_EQ(all.said.find("it shows"), std::string::npos) << all.said;
}

}  // namespace
}  // namespace moe
