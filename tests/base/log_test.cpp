#include "moe/base/log.h"

#include <gtest/gtest.h>

namespace moe {
namespace {

std::string said(LogLevel most) {
  testing::internal::CaptureStderr();
  set_log_level(most);
  log_error("gone {}");
  log_warning("weak");
  log_info("rank 0");
  log_decision("again");
  log_progress("1/2: 3 %\n");
  set_log_level(LogLevel::progress);
  return testing::internal::GetCapturedStderr();
}

TEST(Log, ALevelShowsItselfAndWhatIsGraver) {
  const std::string error = "moetune: gone {}\n", known = error + "moetune: warning: weak\nmoetune: rank 0\n";
  EXPECT_EQ(said(LogLevel::errors), error);
  EXPECT_EQ(said(LogLevel::progress), known + "1/2: 3 %\n");
  EXPECT_EQ(said(LogLevel::decisions), known + "moetune: again\n1/2: 3 %\n");
}

TEST(Log, ARankOfSeveralSaysWhichItIs) {
  set_log_rank(3);
  const std::string rank = said(LogLevel::progress);
  set_log_rank({});
  EXPECT_EQ(rank, "moetune rank 3: gone {}\nmoetune rank 3: warning: weak\nmoetune rank 3: rank 0\n1/2: 3 %\n");
  EXPECT_EQ(said(LogLevel::errors), "moetune: gone {}\n");
}

}  // namespace
}  // namespace moe
