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

}  // namespace
}  // namespace moe
