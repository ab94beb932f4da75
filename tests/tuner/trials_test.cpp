// What is made of trials: which schedule is recommended, and what stands beside it.
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "tuner/answer/answer.h"
#include "tuner/answer/ranking.h"

namespace moe::tuner {
namespace {

struct Told {
  const char* text;
  const char* schedule;
  int forward, backward;
};

TEST(CurrentSchedule, ReadsNameAndDegrees) {
  for (const Told& told : {Told{"tutel", "tutel", 0, 0}, {"tutel:2", "tutel", 2, 2}, {"fsmoe:4:1", "fsmoe", 4, 1}}) {
    const CurrentSchedule current = current_from(told.text);
    EXPECT_EQ(current.schedule->name, told.schedule);
    EXPECT_EQ(current.degree_forward, told.forward);
    EXPECT_EQ(current.degree_backward, told.backward);
  }
  for (const char* bad : {"", "tutle", "tutel:", "tutel:0", "tutel:2x", "tutel:2:", "tutel:2:3:4", "tutel:-1"})
    EXPECT_THROW(current_from(bad), BadInput) << bad;
}

CaseRecord trial(const char* schedule, double predicted_s, double measured_s) {
  CaseRecord record;
  record.key = record.schedule = schedule;
  record.prediction = {{"total_s", predicted_s}};
  record.summary = {{"total_s", measured_s}};
  return record;
}

class AnswerOfTrials : public testing::Test {
 protected:
  AnswerOfTrials() {
    Selection selection;
    selection.layer.batch = 2;
    selection.layer.model_dim = 2048;
    chosen_ = chosen_model({}, selection, profile_);
    answer_.chosen = &chosen_;
    answer_.profile = &profile_;
    answer_.trial_layers = 1;
    answer_.ranking = rank({chosen_, profile_, {}, {}}, {&find_schedule("fsmoe"), &find_schedule("tutel")});
  }
  Profile profile_ = find_profile("testbed-b");
  ChosenModel chosen_;
  Answer answer_;
};

TEST_F(AnswerOfTrials, TheFastestRunIsRecommendedAndTheOtherNamed) {
  ASSERT_EQ(recommended(answer_).schedule->name, "fsmoe");
  const double fsmoe_s = answer_.ranking[0].total_s(), tutel_s = answer_.ranking[1].total_s();
  answer_.trials = {{trial("fsmoe", fsmoe_s, 3 * tutel_s)}};
  EXPECT_EQ(recommended(answer_).schedule->name, "fsmoe") << "one run says nothing about another";
  answer_.trials.push_back({trial("tutel", tutel_s, 2 * tutel_s)});
  EXPECT_EQ(recommended(answer_).schedule->name, "tutel");
  EXPECT_NE(text_of(answer_).find("fsmoe was predicted best and ran 50.0 % slower"), std::string::npos)
      << text_of(answer_);
  answer_.trials[1].record.status = CaseStatus::invalid;
  EXPECT_EQ(recommended(answer_).schedule->name, "fsmoe") << "a run that broke its rules decides nothing";
}

TEST_F(AnswerOfTrials, WhatTheUserHasNowIsShownAndNeverRecommended) {
  answer_.current = answer_.ranking[1];
  answer_.trials = {{trial("fsmoe", 1, 1)}, {trial("tutel", 1, 1.5)}, {trial("tutel", 1, 0.5), true}};
  EXPECT_EQ(recommended(answer_).schedule->name, "fsmoe");
  EXPECT_NE(text_of(answer_).find("tutel (yours)"), std::string::npos);
}

TEST_F(AnswerOfTrials, RunsThatAllFailedMakeNothingSafe) {
  answer_.trials = {{trial("fsmoe", 1, 1)}, {trial("tutel", 1, 1)}};
  for (Trial& t : answer_.trials) t.record.status = CaseStatus::invalid;
  EXPECT_NE(text_of(answer_).find("nothing checks the predictions"), std::string::npos) << text_of(answer_);
}

TEST_F(AnswerOfTrials, NothingLeftIsOneLine) {
  for (RankedSchedule& row : answer_.ranking) row.refused = "too large";
  EXPECT_THROW(recommended(answer_), Unsupported);
}

}  // namespace
}  // namespace moe::tuner
