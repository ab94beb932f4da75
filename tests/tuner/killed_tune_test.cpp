// `tune` of every layer, killed at random moments: its records stay readable, and the next run goes on where they end.
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "moe/base/random.h"
#include "moe/record/reader.h"

namespace moe::tuner {
namespace {

// Layers of k = 9 choose more experts than there are: rows with a reason, asked for again by every run.
constexpr std::string_view kCannotRun = "-k9/";
constexpr int kKills = 20;
constexpr double kLongestLifeS = 1.5;

const char* const kGrid = R"(schema = 1
name = "small"
source = "test"
cluster = "testbed-b"
capacity_rounding = "exact"
[layers]
batch = [1, 2]
heads = 16
seq = 256
model_dim = 1024
hidden_scale = 2
capacity_factor = 1.2
ffn = ["gpt"]
top_k = [2, 9]
experts = "nodes"
)";

class KilledTune : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + fmt::format("moetune-killed-tune-{}", getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/small.toml") << kGrid;
  }

  void TearDown() override { std::filesystem::remove_all(folder_); }

  pid_t start(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{MOETUNE_PROGRAM, "tune",         "--grid", "./small.toml", "--measure",
                                   "all",           "--iterations", "1",      "--out",        "records.jsonl"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      if (chdir(folder_.c_str()) != 0 || !std::freopen("stdout.txt", "w", stdout) ||
          !std::freopen("stderr.txt", "a", stderr))
        _exit(126);
      execv(MOETUNE_PROGRAM, arguments.data());
      _exit(127);
    }
    return child;
  }

  int exit_code(const std::vector<std::string>& more = {}) {
    int status = 0;
    waitpid(start(more), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::vector<moe::Run> runs() {
    const std::string path = folder_ + "/records.jsonl";
    return std::filesystem::exists(path) ? read_runs(path) : std::vector<moe::Run>{};
  }

  // How often each key's line stands in the file, but for those of disturbed runs, which are done again.
  std::map<std::string, int> lines_by_key() {
    std::map<std::string, int> count;
    std::ifstream in(folder_ + "/records.jsonl");
    for (std::string line; std::getline(in, line);) {
      const size_t at = line.find("\"key\":");
      if (at == std::string::npos || line.find(R"("status":"invalid")") != std::string::npos) continue;
      const size_t from = line.find('"', at + 6) + 1;
      ++count[line.substr(from, line.find('"', from) - from)];
    }
    return count;
  }

  std::string text_of(const std::string& name) {
    std::ifstream in(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string folder_;
};

TEST_F(KilledTune, ResumesWithoutDoingAnythingTwice) {
  size_t done = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    const pid_t child = start();
    const double life = random_uniform(7, random_stream_id("kill"), static_cast<uint64_t>(kill_number)) * kLongestLifeS;
    std::this_thread::sleep_for(std::chrono::duration<double>(life));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    const auto found = runs();
    ASSERT_LE(found.size(), 2U);  // a second one only where the first was complete before its kill
    if (found.empty()) continue;
    ASSERT_GE(found.back().cases.size(), found.size() > 1 ? 0 : done);
    done = found.back().cases.size();
    if (found.back().ended) break;
  }
  const bool ended = !runs().empty() && runs().back().ended;
  if (!ended) {
    ASSERT_EQ(exit_code(), 0);
  }
  const auto found = runs();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found.front().ended);
  int measured = 0;
  for (const auto& [key, lines] : lines_by_key()) {
    EXPECT_TRUE(lines == 1 || key.find(kCannotRun) != std::string::npos) << key << ": " << lines;
    measured += key.starts_with("op/");
  }
  EXPECT_GT(measured, 100);
  for (const CaseRecord& record : found.front().cases) {
    if (record.status == CaseStatus::invalid) continue;  // the machine was busy
    const bool can_run = record.key.find(kCannotRun) == std::string::npos;
    EXPECT_EQ(record.status, can_run ? CaseStatus::ok : CaseStatus::unsupported) << record.key << record.reason;
  }
  const std::string printed = text_of("stdout.txt");
  EXPECT_NE(printed.find("4 layers of small: mean speedup over tutel"), std::string::npos) << printed;
  EXPECT_NE(printed.find("8 runs left out of means, errors and ranking: unsupported"), std::string::npos) << printed;
  EXPECT_NE(text_of("stderr.txt").find("4 schedules, 1 passes each: about"), std::string::npos);
}

// Whatever changes what is measured makes another question; what is only shown does not.
TEST_F(KilledTune, AnotherQuestionIsRefused) {
  ASSERT_EQ(exit_code({"--schedule", "tutel,fsmoe"}), 0);
  std::string text = text_of("records.jsonl");
  for (int lines = 0; lines < 2; ++lines) text.resize(text.rfind('\n', text.size() - 2) + 1);
  std::ofstream(folder_ + "/records.jsonl") << text;
  for (const std::vector<std::string>& change :
       std::vector<std::vector<std::string>>{{"--seed", "5"}, {"--degree-forward", "2"}, {"--cluster", "testbed-a"}}) {
    std::vector<std::string> other{"--schedule", "tutel,fsmoe"};
    other.insert(other.end(), change.begin(), change.end());
    std::filesystem::remove(folder_ + "/stderr.txt");
    EXPECT_EQ(exit_code(other), 2) << change.front();
    EXPECT_NE(text_of("stderr.txt").find("records.jsonl: found a run that was interrupted"), std::string::npos)
        << change.front() << ": " << text_of("stderr.txt");
    EXPECT_EQ(text_of("records.jsonl"), text) << change.front();
  }
  EXPECT_EQ(exit_code({"--schedule", "tutel,fsmoe", "--json"}), 0);
  ASSERT_EQ(runs().size(), 1U);
  EXPECT_TRUE(runs().front().ended);
  EXPECT_TRUE(text_of("records.jsonl").starts_with(text));
}

}  // namespace
}  // namespace moe::tuner
