#include "moe/base/launch_board.h"

#include <atomic>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "moe/base/check.h"

namespace moe {
namespace {

TEST(LaunchBoardTest, AnotherProcessReadsWhatIsPosted) {
  LaunchBoard board;
  EXPECT_EQ(board.port(), 0);
  EXPECT_EQ(board.failure(), std::nullopt);
  const pid_t child = fork();
  if (child == 0) {
    LaunchBoard inherited(board.descriptor());
    inherited.post_port(29500);
    inherited.post_failure("rank 3 was ended by signal 9 (Killed)");
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(board.port(), 29500);
  EXPECT_EQ(board.failure(), "rank 3 was ended by signal 9 (Killed)");
}

TEST(LaunchBoardTest, TheFirstFailureStaysAndLongOnesAreCut) {
  LaunchBoard board;
  board.post_failure(std::string(1000, 'x'));
  board.post_failure("second");
  EXPECT_EQ(board.failure(), std::string(200, 'x'));
}

TEST(LaunchBoardTest, ManyWhoSayTheSameSayItOnce) {
  LaunchBoard board;
  std::atomic<int> first{0};
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 8; ++rank)
    ranks.emplace_back([&] { first += LaunchBoard(board.descriptor()).is_first_report("no GPU") ? 1 : 0; });
  ranks.clear();
  EXPECT_EQ(first, 1);
  EXPECT_TRUE(board.is_first_report("something else"));
}

TEST(LaunchBoardTest, OtherDescriptorsAreRefused) {
  const int empty = memfd_create("other", MFD_CLOEXEC), zeros = memfd_create("zeros", MFD_CLOEXEC);
  LaunchBoard board;
  const off_t size = lseek(board.descriptor(), 0, SEEK_END);
  ASSERT_EQ(ftruncate(zeros, size), 0);
  for (const int descriptor : {-1, 12345, empty, zeros}) EXPECT_THROW(LaunchBoard{descriptor}, BadInput) << descriptor;
  EXPECT_NE(fcntl(zeros, F_GETFD), -1) << "it isn't ours to close";
  close(empty), close(zeros);
}

}  // namespace
}  // namespace moe
