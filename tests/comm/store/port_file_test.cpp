#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/comm/store/store.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

class PortFileTest : public testing::Test {
 protected:
  PortFileTest() { std::filesystem::remove(path_); }
  ~PortFileTest() override { std::filesystem::remove(path_); }

  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }
  bool found() const {
    return error_of<RankFailure>([&] { store::wait_for_port(path_, 0.05); }) == "none";
  }

  const std::string path_ = testing::TempDir() + "moetune-test-" + std::to_string(getpid()) + ".port";
};

TEST_F(PortFileTest, IsReadWhileItsMakerKeepsItAndGoneAfterwards) {
  {
    const store::PortFile file(path_, 4711);
    EXPECT_EQ(store::wait_for_port(path_, 1), 4711);
    struct stat status {};
    ASSERT_EQ(stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    EXPECT_THROW(store::PortFile(path_, 1), BadInput) << "another run that is alive";
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_NE(error_of<RankFailure>([&] { store::wait_for_port(path_, 0.05); }).find(path_), std::string::npos);
}

TEST_F(PortFileTest, WhatADeadProcessLeftNeitherFoolsNorHinders) {
  const pid_t child = fork();
  if (child == 0) {
    new store::PortFile(path_, 1);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(std::filesystem::exists(path_));
  EXPECT_FALSE(found());
  const store::PortFile file(path_, 4711);
  EXPECT_EQ(store::wait_for_port(path_, 1), 4711);
}

TEST_F(PortFileTest, ANumberThatNowNamesAnotherProcessIsNotItsMaker) {
  write(fmt::format("{} 1 4711\n", getpid()));
  EXPECT_FALSE(found());
}

TEST_F(PortFileTest, WhatOthersMayReadOrIsHalfWrittenOrALinkIsIgnored) {
  const std::string whole = [&] {
    const store::PortFile file(path_, 4711);
    std::string line;
    std::getline(std::ifstream(path_), line);
    return line;
  }();
  write(whole + "\n");
  EXPECT_TRUE(found());
  write(whole);
  EXPECT_FALSE(found()) << "no end of line";
  write(whole + "\n", 0644);
  EXPECT_FALSE(found()) << "readable by others";
  std::filesystem::remove(path_);
  const std::string target = path_ + ".target";
  std::ofstream(target) << whole << "\n";
  chmod(target.c_str(), 0600);
  std::filesystem::create_symlink(target, path_);
  EXPECT_FALSE(found()) << "a link";
  std::filesystem::remove(target);
}

}  // namespace
}  // namespace moe
