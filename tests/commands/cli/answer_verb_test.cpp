// The answer of `tune` to one layer or model, as a user meets it: what it says holds for the commands that it names.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "moe/base/units.h"
#include "moe/record/reader.h"
#include "tests/commands/cli/program_test.h"

namespace moe {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

class AnswerVerb : public ProgramTest {
 protected:
  Printed tune(std::vector<std::string> words) {
    words.insert(words.begin(), {"tune", "--no-verify", "-o", "answer.jsonl", "--overwrite"});
    return run(words);
  }
  Json answer(std::vector<std::string> words) {
    words.push_back("--json");
    const Printed printed = tune(words);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    return Json::parse(printed.out, nullptr, false);
  }
  // Runs the command behind NEXT in the records of the last answer, as JSON instead of its timeline. The text has the
  // same command (tests/commands/report/answers_test.py).
  Json next_of_answer() {
    Words command;
    std::ifstream records(folder_ + "/answer.jsonl");
    for (std::string line; std::getline(records, line);)
      for (const Json& part : Json::parse(line).value("answer", Json::array())) {
        if (part["label"] != "NEXT") continue;
        std::istringstream words(part["items"][0].get<std::string>());
        for (std::string word; words >> word;) command.push_back(word);
      }
    if (command.size() < 2) {
      ADD_FAILURE() << "answer.jsonl: found no NEXT";
      return {};
    }
    EXPECT_EQ(command[0], "./moetune");
    command.erase(command.begin());
    command.emplace_back("--json");
    const Printed next = run(command);
    EXPECT_EQ(next.exit_code, 0) << next.err;
    return Json::parse(next.out, nullptr, false);
  }
};

TEST_F(AnswerVerb, NextIsAboutWhatWasRecommended) {
  for (const Words& words :
       {Words{"--batch", "4", "--seq", "512", "--model-dim", "2048"},
        Words{"--batch", "4", "--model-dim", "2048", "--degree-forward", "7", "--schedule", "fsmoe,tutel"},
        Words{"--model", "gpt2-xl@fsmoe"}, Words{"--model", "gpt2-xl@fsmoe", "--layers", "1"},
        Words{"--layers", "1", "--dtype", "bfloat16", "--cluster", "h100-8"},
        Words{"--nodes", "4", "--batch", "4", "--nearest"},
        Words{"--capacity-factor", "none", "--batch", "2", "--max-input", "1G", "--node-limit", "2", "--bias"},
        Words{"--layers", "4", "--micro-batches", "3", "--pipeline", "1f1b", "--schedule", "tutel,fsmoe"},
        Words{"--cluster", "h100-deepep-8-nodes", "--nodes", "16", "--model", "qwen3-30b-a3b", "--layers", "4",
              "--zero", "1", "--recompute", "selective", "--ep", "16", "--nearest"},
        Words{"--shape", "auto", "--cluster", "h100-deepep-8-nodes", "--nodes", "4", "--model", "qwen3-30b-a3b",
              "--layers", "2", "--schedule", "ds-moe", "--zero", "0", "--pipeline", "1f1b"},
        Words{"--cluster", "h100-8", "--model", "qwen3-30b-a3b"},
        Words{"--layers", "4", "--micro-batches", "4", "--framework", "deepspeed", "--nearest"},
        Words{"--global-batch", "32", "--cluster", "h100-8", "--model", "gpt-oss-20b", "--schedule", "tutel,fsmoe"},
        Words{"--shape", "auto", "--cluster", "h100-8", "--model", "gpt-oss-20b", "--schedule", "tutel,fsmoe"},
        Words{"--shape", "auto", "--cluster", "h100-8", "--model", "mixtral-7b", "--layers", "2", "--schedule",
              "tutel,fsmoe"},
        Words{"--shape", "auto", "--cluster", "h100-8", "--model", "mixtral-7b", "--layers", "2", "--schedule",
              "tutel,fsmoe", "--cp-exchange", "ring"},
        Words{"--shape", "auto", "--cluster", "h100-8", "--experts", "12", "--dtype", "bfloat16", "--batch", "2"}}) {
    const Json use = answer(words)["use"], next = next_of_answer();
    const Json& row = next.contains("schedules") ? next["schedules"][0] : next;
    const double seconds = row.contains("total_s") ? row["total_s"].get<double>()
                                                   : row["forward_s"].get<double>() + row["backward_s"].get<double>();
    const double beside_s = use["expert_sums_s"].get<double>() + use["head_s"].get<double>();
    EXPECT_NEAR(seconds / (use["total_s"].get<double>() - beside_s), 1, 1e-9) << words[1];
    EXPECT_EQ(row["schedule"], use["schedule"]);
    EXPECT_EQ(row["degree_forward"], use["degree_forward"]);
    EXPECT_EQ(row["memory_bytes"], use["memory_bytes"]);
  }
}

TEST_F(AnswerVerb, NamingGroupsKeepsTheGlobalBatch) {
  const std::vector<std::string> words{"--shape", "auto",        "--cluster",  "h100-8",
                                       "--model", "olmoe-1b-7b", "--schedule", "tutel"};
  const Json free = answer(words);
  for (const auto& [flag, value] : {std::pair{"--mp", "8"}, {"--mp", "2"}, {"--ep", "4"}, {"--pp", "2"}}) {
    std::vector<std::string> named = words;
    named.insert(named.end(), {flag, value});
    const Json kept = answer(named);
    EXPECT_EQ(kept["shapes"]["global_batch"], free["shapes"]["global_batch"]) << flag;
    EXPECT_GE(kept["use"]["total_s"], free["use"]["total_s"]) << flag << ": fewer shapes hold none that is faster";
    EXPECT_EQ(kept["layer"][std::string(flag).substr(2)], std::stoi(value));
  }
}

// Of 74.51 GiB Qwen3-30B needs 137 GiB on 8 ranks with attention's scores, 89 without, and 65 if a layer keeps its
// output alone; over MP 2 73.99 GiB without scores.
TEST_F(AnswerVerb, AModelIsPlannedAsATrainingKeepsIt) {
  const auto kept = [](const Json& json) {
    return std::pair(json["layer"].value("zero", 0), json["layer"].value("recompute", "none"));
  };
  const Words model{"--model", "qwen3-30b-a3b", "--cluster", "h100-8"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Json whole = answer(model), scores = answer(with(model, {"--mp", "2"}));
  EXPECT_EQ(kept(whole), std::pair(1, std::string("full")));
  EXPECT_EQ(whole["defaults"], Json({"--zero 1", "--recompute full"}));
  EXPECT_EQ(kept(scores), std::pair(1, std::string("selective")));
  const Json& ranking = scores["ranking"];
  const auto layers_order = std::ranges::find(ranking, "fsmoe-dw", [](const Json& row) { return row["schedule"]; });
  ASSERT_NE(layers_order, ranking.end());
  EXPECT_NEAR((*layers_order)["memory_bytes"].get<double>() / (1 << 30), 73.91, 0.005);
  const std::string text = tune(with(model, {"--mp", "2"})).out;
  EXPECT_NE(text.find("\ndefaults: --zero 1 --recompute selective; papers use --zero 0 --recompute none\n"),
            std::string::npos)
      << text;
  // The same by flags, of which nothing is a default.
  const Json said = answer(with(model, {"--mp", "2", "--zero", "1", "--recompute", "selective"}));
  EXPECT_EQ(said["use"]["total_s"], scores["use"]["total_s"]);
  EXPECT_EQ(said["defaults"], Json::array());
  const Words paper{"--model", "gpt2-xl@fsmoe", "--zero", "0", "--recompute", "none"};
  EXPECT_EQ(kept(answer(paper)), std::pair(0, std::string("none")));
  EXPECT_EQ(kept(answer({"--batch", "2", "--layers", "2"})), std::pair(0, std::string("none"))) << "no model";
  EXPECT_EQ(kept(answer(with(model, {"--zero", "0", "--layers", "4"}))), std::pair(0, std::string("selective")));
}

// Whatever cuts the batch in the given groups, the search has the best of it.
TEST_F(AnswerVerb, AGlobalBatchIsCutAsTryingAllCutsIt) {
  const Words base{"--model", "olmoe-1b-7b", "--cluster", "h100-8", "--schedule", "tutel,ds-moe", "--layers", "4"};
  const auto with = [&](const Words& more) {
    Words words = base;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Json found = answer(with({"--global-batch", "32"}));
  double min_s = 1e9;
  for (const int count : {1, 2, 4})
    for (const char* zero : {"0", "1"})
      for (const char* recompute : {"none", "selective", "full"})
        for (const char* order : {"gpipe", "1f1b"}) {
          Words words = with({"--batch", std::to_string(4 / count), "--micro-batches", std::to_string(count), "--zero",
                              zero, "--recompute", recompute, "--json"});
          if (count > 1) words.insert(words.end(), {"--pipeline", order});
          const Printed printed = tune(words);
          if (printed.exit_code != 0) continue;
          const Json tried = Json::parse(printed.out);
          for (const Json& row : tried["ranking"])
            if (row["status"] == "ok") min_s = std::min(min_s, row["total_s"].get<double>());
        }
  EXPECT_NEAR(found["shapes"]["at_least_s"].get<double>() / min_s, 1, 1e-9);
  EXPECT_LE(found["use"]["total_s"].get<double>(), 1.01 * min_s);
  EXPECT_EQ(found["shapes"]["global_batch"], 32);
  for (const Json& shape : found["shapes"]["ranked"])
    EXPECT_EQ(shape["batch"].get<int>() * shape["micro_batches"].get<int>() * shape["dp"].get<int>(), 32);
  const Json pinned = answer(with({"--global-batch", "32", "--batch", "2", "--zero", "1"}));
  EXPECT_EQ(pinned["micro_batches"], 2);
  EXPECT_EQ(pinned["shapes"]["pinned"], Json({"groups (--shape auto searches them)", "--batch 2", "--zero 1"}));
  const std::string text = tune(with({"--shape", "auto", "--dp", "4", "--micro-batches", "2"})).out;
  EXPECT_NE(text.find("not searched: --dp 4, --micro-batches 2"), std::string::npos) << text;
  const Printed refused = tune(with({"--global-batch", "12"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--global-batch: found 12, expected a multiple of 8: 8 replicas (DP)"), std::string::npos)
      << refused.err;
}

// Its passes share the lanes: bounds of passes one after the other are no bounds of it.
TEST_F(AnswerVerb, AGlobalBatchUnderWaveIsCutAsTryingAllCutsIt) {
  const Words base{"--model", "gpt2-xl@fsmoe", "--layers", "12", "--schedule", "wave"};
  const auto with = [&](const Words& more) {
    Words words = base;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  double min_s = 1e9;
  for (const int count : {2, 4})
    for (const char* order : {"gpipe", "1f1b"})
      min_s =
          std::min(min_s, answer(with({"--batch", std::to_string(4 / count), "--micro-batches", std::to_string(count),
                                       "--pipeline", order, "--zero", "0", "--recompute", "none"}))["use"]["total_s"]
                              .get<double>());
  EXPECT_LE(answer(with({"--global-batch", "32"}))["use"]["total_s"].get<double>(), 1.01 * min_s);
}

// It is ranked where there is more than one pass, on one stage, and no framework runs it.
TEST_F(AnswerVerb, WaveIsRankedBesideTheOthers) {
  const auto with = [](Words more) {
    more.insert(more.begin(), {"--model", "gpt2-xl@fsmoe", "--layers", "4"});
    return more;
  };
  const Json found = answer(with({"--micro-batches", "4"}));
  EXPECT_EQ(found["use"]["schedule"], "wave");
  for (const Json& row : found["ranking"])
    if (row["status"] == "ok") {
      EXPECT_GE(row["total_s"], found["use"]["total_s"]);
    }
  const std::string text = tune(with({"--micro-batches", "4"})).out;
  EXPECT_NE(text.find("USE    wave, r_f"), std::string::npos) << text;
  EXPECT_NE(text.find("only moetune runs wave"), std::string::npos) << text;
  const Json several =
      answer({"--cluster", "h100-8", "--model", "olmoe-1b-7b", "--layers", "4", "--micro-batches", "4"});
  const auto pairs =
      std::ranges::find_if(several["ranking"], [](const Json& row) { return row["schedule"] == "pair-1f1b"; });
  ASSERT_NE(pairs, several["ranking"].end());
  const auto overlap = std::ranges::find_if(several["frameworks"],
                                            [](const Json& row) { return row["framework"] == "megatron-overlap"; });
  ASSERT_NE(overlap, several["frameworks"].end());
  EXPECT_EQ((*overlap)["schedule"], "pair-1f1b");
  EXPECT_EQ((*overlap)["total_s"], (*pairs)["total_s"]);
  const auto is_ranked = [](const Json& json) {
    return std::ranges::any_of(json["ranking"], [](const Json& row) { return row["schedule"] == "wave"; });
  };
  EXPECT_TRUE(is_ranked(answer(with({"--micro-batches", "4", "--framework", "moetune"}))));
  EXPECT_FALSE(is_ranked(answer(with({"--micro-batches", "4", "--framework", "tutel"}))));
  EXPECT_TRUE(is_ranked(answer({"--cluster", "h100-8", "--model", "olmoe-1b-7b", "--layers", "2", "--pp", "2"})));
  EXPECT_FALSE(is_ranked(answer({"--batch", "1"})));
  const Json own = answer(with({"--micro-batches", "4", "--current", "wave:1,mp=4,ep=8"}))["current"];
  EXPECT_EQ(own["schedule"], "wave");
  EXPECT_EQ(own["degree_forward"], 1);
  EXPECT_GE(own["total_s"].get<double>(), 0.999 * found["use"]["total_s"].get<double>());  // orders by chance differ
  const std::string refused = tune({"--batch", "1", "--current", "wave"}).out;
  EXPECT_NE(refused.find("found a layer alone, expected a model, whose passes it orders"), std::string::npos)
      << refused;
}

// The search plans it after the others, so what they find is no slower with it.
TEST_F(AnswerVerb, AShapeIsSearchedWithWaveToo) {
  const auto found = [&](const std::string& schedules) {
    return answer({"--model", "gpt2-xl@fsmoe", "--layers", "4", "--global-batch", "32", "--schedule", schedules});
  };
  const Json all = found("all"), others = found("fsmoe-dw,tutel");
  EXPECT_EQ(all["use"]["schedule"], "wave");
  EXPECT_LT(all["use"]["total_s"], others["use"]["total_s"]);
  EXPECT_LE(all["shapes"]["at_least_s"], all["use"]["total_s"]);
}

// What is planned for a framework its export writes without a word on what the framework refuses.
TEST_F(AnswerVerb, OfAFrameworkHasWhatItsExportWrites) {
  const Words olmoe{"--model", "olmoe-1b-7b", "--cluster", "h100-8", "--layers", "4", "--global-batch", "16"};
  for (const auto& [framework, schedule] : {std::pair("megatron", "ds-moe"),
                                            {"megatron-overlap", "pair-1f1b"},
                                            {"deepspeed", "ds-moe"},
                                            {"tutel", "tutel"},
                                            {"torchtitan", "ds-moe"}})
    for (const bool any_shape : {false, true}) {
      Words words = olmoe;
      words.insert(words.end(), {"--framework", framework});
      if (any_shape) words.insert(words.end(), {"--shape", "auto"});
      const Json json = answer(words);
      EXPECT_EQ(json["framework"], framework);
      for (const Json& row : json["ranking"]) EXPECT_TRUE(row["schedule"] == schedule || row["schedule"] == "ds-moe");
      for (const Json& shape : json["shapes"]["ranked"])
        EXPECT_TRUE(shape["micro_batches"] == 1 || shape["pp"] > 1 || shape["pipeline"] == "1f1b") << shape;
      const std::string text = tune(words).out;
      EXPECT_EQ(text.find("over tutel") != std::string::npos, std::string(framework) == "tutel") << text;
      const Printed printed = run({"export", framework, "answer.jsonl"});
      EXPECT_EQ(printed.exit_code, std::string(framework) == "torchtitan" ? 2 : 0) << printed.err;
      for (const char* refusal : {" refuses ", "shards", "accumulates", "pipeline stage", "as neighbours"})
        EXPECT_EQ(printed.out.find(refusal), std::string::npos) << printed.out;
    }
  const auto refused = [&](Words words) {
    const Printed printed = tune(std::move(words));
    EXPECT_EQ(printed.exit_code, 2) << printed.out;
    return printed.err;
  };
  EXPECT_NE(refused({"--model", "gpt2-xl@fsmoe", "--framework", "megatron"})
                .find("--framework megatron: Megatron-Core refuses 25 attention heads over TP 4; --shape auto"),
            std::string::npos);
  const Words overlap{"--model", "olmoe-1b-7b", "--cluster", "h100-8", "--framework", "megatron-overlap"};
  const auto overlap_refused = [&](Words more) {
    more.insert(more.begin(), overlap.begin(), overlap.end());
    return refused(std::move(more));
  };
  EXPECT_NE(overlap_refused({"--recompute", "full"}).find("refuses --recompute full"), std::string::npos);
  EXPECT_NE(overlap_refused({"--ep", "1"}).find("needs EP above 1"), std::string::npos);
  EXPECT_NE(overlap_refused({"--pp", "2"}).find("needs virtual stages"), std::string::npos);
  EXPECT_NE(overlap_refused({"--dtype", "float32"}).find("needs bfloat16 or float16"), std::string::npos);
  EXPECT_NE(refused({"--layers", "1", "--dtype", "bfloat16", "--framework", "megatron-overlap"})
                .find("found one layer in one micro-batch"),
            std::string::npos);
  EXPECT_NE(refused({"--batch", "2", "--framework", "megatron", "--schedule", "fsmoe"})
                .find("--framework megatron: found no --schedule that Megatron-Core runs, expected ds-moe"),
            std::string::npos);
  EXPECT_NE(refused({"--model", "qwen3-30b-a3b", "--cluster", "h100-8", "--framework", "fsmoe", "--shape", "auto"})
                .find("the published layer refuses a layer that drops nothing"),
            std::string::npos);
}

// Beside the answer to all frameworks stands what the answer to each alone recommends, and its export writes that.
TEST_F(AnswerVerb, EachFrameworkHasItsOwnBest) {
  int other_shapes = 0;
  for (const Words& words : {Words{"--model", "olmoe-1b-7b", "--cluster", "h100-8", "--layers", "4", "--global-batch",
                                   "16", "--shape", "auto"},
                             Words{"--model", "gpt2-xl@fsmoe", "--layers", "4", "--shape", "auto"},
                             Words{"--model", "gpt-oss-20b", "--cluster", "h100-8", "--layers", "2", "--dp", "4",
                                   "--ep", "4", "--pp", "2", "--mp", "1", "--esp", "1", "--micro-batches", "4"},
                             Words{"--batch", "2", "--schedule", "fsmoe"}}) {
    const Json whole = answer(words);
    std::map<std::string, Json> exported;
    for (const char* framework : {"tutel", "deepspeed"})
      exported[framework] = Json::parse(run({"export", framework, "answer.jsonl"}).out, nullptr, false);
    ASSERT_EQ(whole["frameworks"].size(), 6U);
    for (const Json& row : whole["frameworks"]) {
      const std::string framework = row["framework"];
      Words alone = words;
      if (words.back() == "fsmoe") alone.resize(alone.size() - 2);
      alone.insert(alone.end(), {"--framework", framework, "--json"});
      const Printed printed = tune(alone);
      EXPECT_EQ(printed.exit_code, row["status"] == "ok" ? 0 : 2) << row << printed.err;
      if (printed.exit_code != 0) continue;
      const Json own = Json::parse(printed.out);
      for (const char* key : {"total_s", "schedule", "degree_forward", "degree_backward_most"})
        EXPECT_EQ(row[key], own["use"][key]) << framework << " " << key;
      EXPECT_EQ(row["memory_bytes"], own["use"]["memory_bytes"]) << framework;
      bool other = false;
      for (const char* group : {"dp", "mp", "ep", "esp", "pp"}) {
        EXPECT_EQ(row[group], own["layer"][group]) << framework;
        other |= row[group] != whole["layer"][group];
      }
      EXPECT_EQ(row["micro_batches"], own["micro_batches"]);
      other_shapes += other ? 1 : 0;
      if (!exported.contains(framework)) continue;
      const Json own_export = Json::parse(run({"export", framework, "answer.jsonl"}).out);
      for (const char* key : {"total_s", "schedule", "arguments"})
        EXPECT_EQ(exported[framework][key], own_export[key]) << framework << " " << key;
    }
  }
  EXPECT_GT(other_shapes, 0) << "else all have the answer's own shape";
}

// Returns a number with three digits and its unit, as tables have times.
std::string shown_seconds(double seconds) {
  const bool s = seconds >= 1, ms = !s && seconds >= 1e-3;
  const double value = seconds * (s ? 1 : ms ? 1e3 : 1e6);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, s ? "s" : ms ? "ms" : "us");
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t begin = line.find_first_not_of(' '); begin != std::string::npos;) {
    const size_t end = std::min(line.find("  ", begin), line.size());
    cells.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(' ', end);
  }
  return cells;
}

// All cells of tables of all schedules, the rates of the recommended one, and what records say of every one.
TEST_F(AnswerVerb, TextAndJsonAndRecordsHaveTheSameNumbers) {
  int rows = 0, marked_below = 0, lines_of_frameworks = 0;
  for (const Words& words :
       {Words{"--batch", "2"}, Words{"--batch", "4", "--seq", "512"}, Words{"--batch", "1", "--model-dim", "4096"},
        Words{"--layers", "2", "--micro-batches", "4", "--nearest", "--schedule", "tutel,fsmoe,ds-moe,lina"},
        Words{"--model", "gpt2-xl@fsmoe", "--layers", "3"}, Words{"--model", "mixtral-7b", "--layers", "2"},
        Words{"--model", "olmoe-1b-7b", "--cluster", "h100-8", "--layers", "4"},
        Words{"--model", "olmoe-1b-7b", "--cluster", "h100-8", "--layers", "2", "--global-batch", "16"},
        Words{"--model", "qwen3-30b-a3b", "--cluster", "h100-8", "--layers", "2", "--mp", "2"},
        Words{"--model",
              "gpt-oss-20b",
              "--cluster",
              "h100-8",
              "--layers",
              "2",
              "--dp",
              "4",
              "--ep",
              "4",
              "--pp",
              "2",
              "--mp",
              "1",
              "--esp",
              "1",
              "--micro-batches",
              "4",
              "--window",
              "0",
              "--schedule",
              "lina-priority,fsmoe-dw,tutel,ds-moe"}}) {
    Words all = words;
    all.insert(all.end(), {"--top", "99"});
    const Printed printed = tune(all);
    ASSERT_EQ(printed.exit_code, 0) << printed.err;
    const Json json = answer(words);
    std::map<std::string, Json> by_name;
    for (const Json& row : json["ranking"]) by_name[row["schedule"]] = row;
    const double tutel_s = by_name["tutel"].value("total_s", 0.0);
    double last_s = 0;
    std::istringstream lines(printed.out.substr(printed.out.find("\nUSE    ")));
    for (std::string line; std::getline(lines, line) && !line.starts_with("WHY");) {
      std::vector<std::string> cells = cells_of(line);
      if (cells.size() != 8) continue;
      const size_t mark = cells[0].find(" (use)");
      const std::string name = cells[0].substr(0, mark);
      if (!by_name.contains(name)) continue;
      const Json& row = by_name[name];
      const double total_s = row["total_s"];
      EXPECT_EQ(mark != std::string::npos, name == json["use"]["schedule"]) << line;
      marked_below += mark != std::string::npos && last_s > 0 ? 1 : 0;
      EXPECT_GE(total_s, last_s * (1 - 1e-8)) << line;
      last_s = total_s;
      EXPECT_EQ(cells[1], std::to_string(row["degree_forward"].get<int>()));
      EXPECT_EQ(cells[3], shown_seconds(total_s)) << line;
      EXPECT_EQ(cells[4], tutel_s > 0 ? fmt::format("{:.3f}x", tutel_s / total_s) : "-") << line;
      EXPECT_EQ(cells[6], fmt::format("{:.1f} %", 100 * row["bound_s"].get<double>() / total_s)) << line;
      ++rows;
    }
    const Json& use = json["use"];
    const bool model = words[0] == "--model";
    EXPECT_EQ(use.contains("tokens_per_s_per_rank"), model);
    if (model) {
      const std::string rates =
          fmt::format("{:.0f} tokens/s/GPU, {:.3g} model TFLOP/s/GPU", use["tokens_per_s_per_rank"].get<double>(),
                      use["model_flops_per_s_per_rank"].get<double>() / 1e12);
      EXPECT_NE(printed.out.find(rates), std::string::npos) << printed.out;
    }
    std::map<std::string, Json> plans_by_framework;
    const std::string set = printed.out.substr(printed.out.find("\nSET IT "));
    for (const Json& row : json["frameworks"]) {
      const std::string key = row["framework"];
      plans_by_framework[key] = row;
      const bool ok = row["status"] == "ok";
      const size_t at =
          ok ? set.find("\n  " + key + "  ") : std::min(set.find(" " + key + ": "), set.find(" " + key + ", "));
      ASSERT_NE(at, std::string::npos) << key << printed.out;
      if (!ok) continue;
      const std::vector<std::string> cells = cells_of(set.substr(at + 1, set.find('\n', at + 1) - at - 1));
      const double total_s = row["total_s"];
      EXPECT_EQ(cells[1], row["schedule"]);
      EXPECT_EQ(cells[2], std::to_string(row["degree_forward"].get<int>()));
      EXPECT_EQ(cells[4], shown_seconds(total_s));
      EXPECT_EQ(cells[5], fmt::format("{:+.1f} %", 100 * (total_s / json["use"]["total_s"].get<double>() - 1)));
      const bool rates = row.contains("tokens_per_s_per_rank");
      if (rates) {
        EXPECT_EQ(cells[6], fmt::format("{:.0f}", row["tokens_per_s_per_rank"].get<double>()));
      }
      EXPECT_EQ(cells[rates ? 7 : 6], human_bytes(row["memory_bytes"].get<double>()));
      ++lines_of_frameworks;
    }
    for (const CaseRecord& record : read_last_run(folder_ + "/answer.jsonl").cases) {
      if (record.key.starts_with("answer/")) {  // tests/commands/report/answers_test.py compares all of its cells
        EXPECT_EQ(record.schedule, json["use"]["schedule"]);
        continue;
      }
      const bool planned_for_one = record.key.starts_with("framework/");
      const Json& row = planned_for_one ? plans_by_framework.at(record.parameters.text("framework", ""))
                                        : by_name.at(record.schedule);
      EXPECT_EQ(record.status == CaseStatus::ok, row["status"] == "ok");
      if (record.status != CaseStatus::ok) {
        EXPECT_EQ(record.reason, row["reason"]) << record.key;
        continue;
      }
      EXPECT_EQ(record.schedule, row["schedule"]);
      for (const char* key : {"total_s", "forward_s", "memory_bytes", "head_s", "tokens_per_s_per_rank",
                              "model_flops_per_s_per_rank", "model_flops_utilisation"})
        EXPECT_EQ(record.prediction.has(key) ? record.prediction.number(key, key) : 0, row.value(key, 0.0))
            << record.key << " " << key;
    }
  }
  EXPECT_GT(rows, 100);
  EXPECT_GT(marked_below, 0) << "else sorting decides nothing";
  EXPECT_GT(lines_of_frameworks, 20);
}

TEST_F(AnswerVerb, OneMicroBatchCanBeAskedForInASearch) {
  std::vector<std::string> words{"--shape", "auto", "--cluster",  "h100-8", "--model",  "olmoe-1b-7b",
                                 "--batch", "4",    "--schedule", "tutel",  "--layers", "4"};
  const auto several = [](const Json& shapes) {
    return std::ranges::any_of(shapes["ranked"], [](const Json& shape) { return shape["micro_batches"] > 1; });
  };
  const Json free = answer(words)["shapes"];
  words.insert(words.end(), {"--micro-batches", "1"});
  const Json one = answer(words)["shapes"];
  EXPECT_TRUE(several(free)) << "else the flag decides nothing here";
  EXPECT_FALSE(several(one));
  EXPECT_EQ(one["global_batch"], free["global_batch"]);
  EXPECT_LT(one["shapes"], free["shapes"]);
}

// Lines of commands to copy, and of files, are as long as they are.
TEST_F(AnswerVerb, LinesKeepTheirWidth) {
  const auto check = [](const Printed& printed) {
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    std::istringstream lines(printed.out);
    for (std::string line; std::getline(lines, line);)
      EXPECT_TRUE(line.size() <= 120 || line.find("./moetune ") != std::string::npos) << line;
    return printed.out;
  };
  const std::string parts = check(tune({"--batch", "4", "--mp", "2", "--esp", "4", "--nearest", "--all"}));
  EXPECT_NE(parts.find(
                "that cannot be used here:\n    monta-baseline, monta-o1, monta-o2 and 2 more: found mp 2 and esp 4, "),
            std::string::npos)
      << parts;
  check(tune({"--cluster", "testbed-a"}));
  check(run({"simulate", "--model", "gpt2-xl@fsmoe", "--schedule", "tutel,lina,fsmoe"}));
  check(run({"simulate", "--batch", "4", "--model-dim", "2048", "--schedule", "all"}));
  check(tune({"--model", "gpt2-xl@fsmoe", "--current", "tutel:2", "--top", "30"}));
}

// Whatever is asked, the answer is on one page, with all of its parts; the long one has what the short one leaves out.
TEST_F(AnswerVerb, IsAtMost25Lines) {
  for (Words words :
       {Words{"--model", "qwen3-30b-a3b", "--cluster", "h100-deepep-8-nodes", "--shape", "auto", "--layers", "1"},
        Words{"--batch", "1"}, Words{"--batch", "4", "--current", "tutel:2:3"},
        Words{"--model", "gpt2-xl@fsmoe", "--layers", "3"},
        Words{"--cluster", "testbed-a", "--batch", "2", "--shape", "auto"},
        Words{"--model", "gpt2-xl@fsmoe", "--shape", "auto", "--layers", "4", "--current", "ds-moe"},
        Words{"--model", "mixtral-7b", "--cluster", "h100-deepep-4-nodes", "--shape", "auto", "--layers", "2",
              "--nearest"},
        Words{"--model", "qwen3-30b-a3b", "--cluster", "h100-deepep-8-nodes", "--shape", "auto", "--layers", "1",
              "--mp", "2", "--esp", "1", "--global-batch", "64"},
        Words{"--model", "olmoe-1b-7b", "--cluster", "h100-8", "--shape", "auto", "--layers", "2", "--current",
              "fsmoe:7:1"},
        Words{"--model", "gpt-oss-20b", "--cluster", "h100-deepep-1-node", "--layers", "2", "--zero", "1"}}) {
    const bool shapes = std::ranges::find(words, "--shape") != words.end();
    if (shapes) words.insert(words.end(), {"--schedule", "ds-moe,tutel,fsmoe,fsmoe-dw,lina"});  // of a shorter search
    const Printed printed = tune(words);
    ASSERT_EQ(printed.exit_code, 0) << printed.err;
    // The user's layout, and at most four steps and two notes, stand beside the 25 lines.
    const size_t own = printed.out.find("\nYOURS  "), why = printed.out.find("\nWHY    ");
    const auto own_bound_ratio = own == std::string::npos ? 0 : std::count(&printed.out[own], &printed.out[why], '\n');
    EXPECT_LE(own_bound_ratio, 7) << printed.out;
    const auto lines = std::ranges::count(printed.out, '\n') - own_bound_ratio;
    EXPECT_LE(lines, 25) << printed.out;
    EXPECT_GE(lines, 17) << printed.out;
    for (const char* part :
         {"\nUSE    ", "\nWHY    ", "\nSAFE?  ", "\nSET IT ", "\nNEXT   ", "a rank needs", "tutel", "critical path: "})
      EXPECT_NE(printed.out.find(part), std::string::npos) << part << printed.out;
    EXPECT_NE(printed.out.find("all settings: ./moetune export "), std::string::npos) << printed.out;
    for (const char* part : {"\nSHAPE  ", " shapes of a global batch of ", "left out: ", "less memory"})
      EXPECT_EQ(printed.out.find(part) != std::string::npos, shapes) << part << printed.out;
    Words longer = words;
    longer.insert(longer.end(), {"--top", "30"});
    EXPECT_GT(std::ranges::count(tune(longer).out, '\n'), lines);
  }
}

TEST_F(AnswerVerb, WhatCannotBeUsedIsOneLine) {
  const auto said = [&](const std::vector<std::string>& words) {
    const Printed printed = tune(words);
    EXPECT_EQ(printed.exit_code, 2) << words[0];
    EXPECT_EQ(std::ranges::count(printed.err, '\n'), 1) << printed.err;
    return printed.err;
  };
  EXPECT_NE(said({"--shape", "auto", "--pp", "4"}).find("--pp: found 4, expected at most 1"), std::string::npos);
  EXPECT_NE(said({"--batch", "1", "--degree-forward", "3", "--schedule", "ds-moe"})
                .find("every schedule: found degrees 3 and 0, expected 1"),
            std::string::npos);
  EXPECT_NE(said({"--dtype", "float32", "--shape", "auto", "--cluster", "h100-8", "--batch", "1"})
                .find("no gemm row for float32"),
            std::string::npos);
  EXPECT_NE(said({"--shape", "auto", "--mp", "3", "--batch", "1"}).find("found no groups of 32 ranks"),
            std::string::npos);
}

// A fit that is no line is WEAK, and what it prices is doubtful.
TEST_F(AnswerVerb, StrictEndsWithFiveWhereAFitIsWeak) {
  const auto exit_code = [&](const std::vector<std::string>& words) {
    const Printed printed = run_program(MOETUNE_PROGRAM, words, folder_);
    if (printed.exit_code == 2) ADD_FAILURE() << printed.err;
    return printed.exit_code;
  };
  for (const bool bent : {false, true}) {
    std::ofstream csv(folder_ + "/s.csv");
    csv << "op,network,ranks,bytes,seconds\n";
    for (int i = 0; i < 12; ++i)
      csv << fmt::format("alltoall,inter,8,{},{}\n", 1 << (16 + i / 2),
                         1e-3 + (bent && i > 7 ? 0.5 * (i % 2) : 0) + 1e-9 * (1 << (16 + i / 2)));
    csv.close();
    EXPECT_EQ(
        exit_code({"import", "csv", "s.csv", "--nodes", "8", "--ranks-per-node", "4", "-o", "r.jsonl", "--overwrite"}),
        0);
    EXPECT_EQ(exit_code({"fit", "--records", "r.jsonl", "-o", "p.toml"}), 0);
    EXPECT_EQ(exit_code({"fit", "--records", "r.jsonl", "--out", "p.toml", "--strict"}), bent ? 5 : 0);
    std::filesystem::copy_file(folder_ + "/p.toml", folder_ + "/mine.toml",
                               std::filesystem::copy_options::overwrite_existing);
    std::ofstream(folder_ + "/mine.toml", std::ios::app)
        << "\n[[comm]]\nop = \"allreduce\"\nnetwork = \"inter\"\nranks = 8\nalpha_s = 1e-4\nbeta_s_per_byte = 1e-10\n"
           "\n[[comm]]\nop = \"allgather\"\nnetwork = \"intra\"\nranks = 4\nalpha_s = 1e-4\nbeta_s_per_byte = 1e-10\n"
           "\n[[comm]]\nop = \"reducescatter\"\nnetwork = \"intra\"\nranks = 4\nalpha_s = 1e-4\nbeta_s_per_byte = "
           "1e-10\n"
           "\n[[compute]]\nop = \"gemm\"\nalpha_s = 1e-5\nbeta_s_per_flop = 1e-14\n";
    const std::vector<std::string> tune{"tune", "--no-verify", "--cluster", "./mine.toml", "--batch",
                                        "1",    "--out",       "t.jsonl",   "--overwrite"};
    std::vector<std::string> strict = tune;
    strict.emplace_back("--strict");
    EXPECT_EQ(exit_code(tune), 0);
    EXPECT_EQ(exit_code(strict), bent ? 5 : 0);
  }
}

}  // namespace
}  // namespace moe
