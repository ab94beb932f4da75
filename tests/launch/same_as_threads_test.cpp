// Layers over processes are those over threads: with 2, 4 and 8 ranks, launch's own worst error of a layer's outputs
// and gradients is the one that threads of this process find, to the last bit.
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unistd.h>

#include "commands/cli/flags.h"
#include "commands/shared/run/layer_run.h"
#include "layerbench/layerbench.h"
#include "moe/prices/profile.h"
#include "tests/commands/cli/program.h"

namespace moe {
namespace {

using Words = std::vector<std::string>;
using Errors = std::map<std::string, double>;  // by schedule

const std::string kSchedules = "tutel,fsmoe,parm-s2,lina";
const Words kLayer{"--batch",    "1",       "--seq",   "64",      "--model-dim", "32", "--hidden",          "64",
                   "--heads",    "8",       "--dtype", "float64", "--experts",   "8",  "--capacity-factor", "0.9",
                   "--schedule", kSchedules};

struct Shape {
  int nodes, ranks_per_node;
};

class SameAsThreads : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + fmt::format("moetune-launch-{}-{}", getpid(), GetParam().nodes);
    std::filesystem::create_directories(folder_);
    std::ofstream file(profile());
    file << fmt::format(
        "schema = 1\nname = \"made\"\nsource = \"made for a test\"\n[topology]\nnodes = {}\n"
        "ranks_per_node = {}\n",
        GetParam().nodes, GetParam().ranks_per_node);
    for (const auto& [network, ranks] :
         {std::pair("inter", GetParam().nodes), std::pair("intra", GetParam().ranks_per_node)})
      for (const std::string op : {"alltoall", "allgather", "reducescatter", "allreduce"})
        if (ranks > 1)
          file << fmt::format(
              "[[comm]]\nop = \"{}\"\nnetwork = \"{}\"\nranks = {}\nalpha_s = 1e-4\n"
              "beta_s_per_byte = 1e-9\n",
              op, network, ranks);
    file << "[[compute]]\nop = \"gemm\"\ndtype = \"float64\"\nalpha_s = 1e-5\nbeta_s_per_flop = 1e-10\n";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string profile() const { return folder_ + "/profile.toml"; }
  int ranks() const { return GetParam().nodes * GetParam().ranks_per_node; }
  Words layerbench() const {
    Words words{"layerbench", "--cluster", profile(), "--check-only", "--json", "--out", folder_ + "/records.jsonl"};
    words.insert(words.end(), kLayer.begin(), kLayer.end());
    return words;
  }

  Errors over_processes() const {
    Words words{"launch", "--ranks", fmt::format("{}", ranks()), "--"};
    for (const std::string& word : layerbench()) words.push_back(word);
    words.insert(words.end(), {"--ranks-per-node", fmt::format("{}", GetParam().ranks_per_node)});
    const Printed printed = run_program(MOETUNE_PROGRAM, words, folder_);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    Errors errors;
    const auto json = nlohmann::json::parse(printed.out, nullptr, false);
    if (json.is_discarded()) return errors;
    for (const auto& schedule : json["schedules"])
      if (schedule["status"] == "ok") errors[schedule["schedule"]] = schedule["measured"]["worst_error"];
    return errors;
  }

  // Returns how many references the processes computed together, by every schedule's record.
  std::set<int> references() const {
    std::ifstream file(folder_ + "/records.jsonl");
    std::set<int> found;
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line, nullptr, false);
      if (record.contains("summary") && record["status"] == "ok")
        found.insert(record["summary"].value("references", 0));
    }
    return found;
  }

  Errors over_threads() const {
    std::vector<const char*> argv{"moetune"};
    const Words words = layerbench();
    for (const std::string& word : words) argv.push_back(word.c_str());
    const commands::Selection selection = cli::parse_command_line(static_cast<int>(argv.size()), argv.data())
                                              ->options<layerbench::LayerbenchOptions>()
                                              .selection;
    commands::LayerJob job;
    job.name = "layer";
    job.model.shape = commands::chosen_case(selection, GetParam().nodes, GetParam().ranks_per_node);
    job.predicted_by = find_profile(profile());
    job.schedules = commands::chosen_schedules(selection, schedules(), commands::kAllSchedules);
    job.settings = {.emulated = false, .check_only = true};
    Errors errors;
    for (const commands::ScheduleRun& run : commands::run_layer_job(job, {}).runs)
      if (const CaseRecord& record = run.record; record.status == CaseStatus::ok)
        errors[record.schedule] = record.summary.number("worst_error", "threads");
    return errors;
  }

  std::string folder_;
};

TEST_P(SameAsThreads, ToTheLastBit) {
  const Errors found = over_processes();
  EXPECT_EQ(found.size(), 4U) << "schedules that ran";
  for (const auto& [schedule, error] : found) {
    fmt::print("{} processes, {}: {:.3g}\n", ranks(), schedule, error);
    EXPECT_LE(error, 1e-10) << schedule;
    EXPECT_GT(error, 0) << schedule << ": nothing was compared";
  }
  EXPECT_EQ(found, over_threads());
  EXPECT_EQ(references(), std::set{1}) << "of all schedules on all ranks";
}

INSTANTIATE_TEST_SUITE_P(Ranks, SameAsThreads, testing::Values(Shape{1, 2}, Shape{2, 2}, Shape{4, 2}),
                         [](const auto& shape) {
                           return fmt::format("{}x{}", shape.param.nodes, shape.param.ranks_per_node);
                         });

}  // namespace
}  // namespace moe
