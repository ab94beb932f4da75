#include "commands/regress/process.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "commands/regress/launches.h"
#include "moe/base/check.h"

namespace moe::regress {
namespace {

ProcessResult shell(const std::string& script, double timeout_s = 60) {
  return run_process({"/bin/sh", "-c", script}, timeout_s);
}

TEST(Process, SaysHowItEnded) {
  EXPECT_EQ(shell("exit 0").code, 0);
  EXPECT_EQ(shell("exit 3").code, 3);
  EXPECT_EQ(shell("kill -9 $$").code, 128 + SIGKILL);
  const ProcessResult told = shell("echo first >&2; printf 'the reason\\n\\n' >&2; echo out; exit 4");
  EXPECT_EQ(told.last_line, "the reason");
  EXPECT_EQ(told.code, 4);
  EXPECT_FALSE(told.timed_out);
  EXPECT_EQ(run_process({"/nowhere/program"}, 60).code, 127);
  EXPECT_NE(run_process({"/nowhere/program"}, 60).last_line.find("No such file"), std::string::npos);
}

TEST(Process, ReadsNothingAndTakesItsTime) {
  EXPECT_EQ(shell("read line && exit 1; exit 0").code, 0);
  EXPECT_GE(shell("sleep 0.2").wall_s, 0.2);
}

TEST(Process, ATimeoutEndsAllThatItStarted) {
  const std::string mark = testing::TempDir() + "moetune-outlived-" + std::to_string(getpid());
  const ProcessResult end = shell("(trap '' TERM; sleep 2; touch " + mark + ") & sleep 60", 0.3);
  EXPECT_TRUE(end.timed_out);
  EXPECT_LT(end.wall_s, 10);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST(Process, NothingOutlivesALaunch) {
  const std::string mark = testing::TempDir() + "moetune-left-" + std::to_string(getpid());
  EXPECT_EQ(shell("(sleep 1; touch " + mark + ") & exit 0").code, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST(Process, ASignalEndsTheLaunchFirst) {
  const std::string mark = testing::TempDir() + "moetune-launch-" + std::to_string(getpid());
  std::filesystem::remove(mark);
  const pid_t child = fork();
  if (child == 0) {
    run_interruptibly([&] {
      shell("trap 'touch " + mark + "; exit 0' TERM; while :; do sleep 0.05; done");
      return 0;
    });
    _exit(0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
  EXPECT_TRUE(std::filesystem::exists(mark));
  std::filesystem::remove(mark);
}

TEST(Words, StandBetweenBlanks) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words_of("a  b\tc\n d", "x"), (Words{"a", "b", "c", "d"}));
  EXPECT_EQ(words_of("--x 'a b' c\"d e\"f ''", "x"), (Words{"--x", "a b", "cd ef", ""}));
  EXPECT_TRUE(words_of(" \n", "x").empty());
  EXPECT_THROW(words_of("a 'b", "x"), BadInput);
}

class CaseLists : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::string error_of(const std::string& text) {
    std::ofstream(path_) << text;
    try {
      case_list_of("ab", path_, {});
      return "";
    } catch (const BadInput& error) {
      return error.what();
    }
  }
  std::string path_ = testing::TempDir() + "moetune-cases-" + std::to_string(getpid()) + ".toml";
};

TEST_F(CaseLists, AreRead) {
  std::ofstream(path_) << "schema = 1\n[[launch]]\nname = \"a\"\ncommand = \"layerbench --batch 1\"\n[[launch]]\n"
                          "name = \"b\"\ncommand = \"microbench\"\ndemanded = true\n[[waiver]]\ncase = \"a/x\"\n"
                          "reason = \"known\"\nuntil = \"2030-02-28\"\n";
  const CaseList list = case_list_of("ab", path_, {});
  ASSERT_EQ(list.launches.size(), 2U);
  EXPECT_EQ(list.launches[0].words, (std::vector<std::string>{"layerbench", "--batch", "1"}));
  EXPECT_FALSE(list.launches[0].demanded);
  EXPECT_TRUE(list.launches[1].demanded);
  EXPECT_EQ(list.waivers.front().until, std::chrono::year(2030) / 2 / 28);
}

TEST_F(CaseLists, OfTheProjectAreRead) {
  int read = 0;
  for (const auto& file : std::filesystem::directory_iterator(MOETUNE_SOURCE_DIR "/configs/ci")) {
    const CaseList list = case_list_of("ab", file.path(), {});
    for (const LaunchLine& line : list.launches) EXPECT_FALSE(line.words.empty()) << file.path();
    ++read;
  }
  EXPECT_GE(read, 2);
}

TEST_F(CaseLists, RefuseWithFileLineAndKey) {
  const std::string launch = "schema = 1\n[[launch]]\nname = \"a\"\ncommand = \"list\"\n";
  EXPECT_NE(error_of("schema = 1\n").find("launch: found no [[launch]]"), std::string::npos);
  EXPECT_NE(error_of(launch + "[[launch]]\nname = \"a\"\ncommand = \"list\"\n").find(":6: "), std::string::npos);
  EXPECT_NE(error_of(launch + "[[waiver]]\ncase = \"a\"\nreason = \"r\"\nuntil = \"2030-02-30\"\n").find("until"),
            std::string::npos);
  EXPECT_NE(error_of(launch + "colour = 1\n").find("colour"), std::string::npos);
  EXPECT_NE(error_of("schema = 1\n[[launch]]\nname = \"a\"\ncommand = \"list 'x\"\n").find("command"),
            std::string::npos);
  EXPECT_THROW(case_list_of("ab", "", {}), BadInput);
  EXPECT_THROW(case_list_of("ab", path_, {"layerbench"}), BadInput);
}

}  // namespace
}  // namespace moe::regress
