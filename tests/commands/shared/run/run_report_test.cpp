#include "commands/shared/run/run_report.h"

#include <gtest/gtest.h>
#include <sstream>

#include "commands/shared/run/layer_records.h"
#include "moe/schedule/schedule.h"

namespace moe::commands {
namespace {

TEST(TasksText, IsNarrowWhateverOverran) {
  LayerOutcome outcome;
  for (const Schedule& schedule : schedules()) {
    ScheduleRun run{};
    run.tasks.emplace_back();
    run.plan.schedule = schedule.name;
    run.record.summary.set("overrun_share", 0.1234);
    outcome.runs.push_back(std::move(run));
  }
  std::istringstream text(tasks_text(outcome));
  for (std::string line; std::getline(text, line);) EXPECT_LE(line.size(), 120) << line;
  EXPECT_NE(text.str().find("; 12.34 % of tasks took longer than modelled"), std::string::npos);
}

TEST(JudgeOverruns, MoreThanOneInAHundredIsInvalid) {
  CaseRecord few, many;
  judge_overruns(0.01, few);
  judge_overruns(0.171, many);
  EXPECT_EQ(few.status, CaseStatus::ok);
  EXPECT_EQ(many.status, CaseStatus::invalid);
  EXPECT_EQ(many.reason, "17.1 % of the tasks took longer than their modelled time");
  EXPECT_EQ(many.summary.number("overrun_share", ""), 0.171);
}

}  // namespace
}  // namespace moe::commands
