// What is made of trials: which schedule is recommended, and what stands beside it.
#include <array>
#include <gtest/gtest.h>
#include <random>
#include <sstream>

#include "moe/base/check.h"
#include "tests/tuner/made_up_runs.h"
#include "tuner/answer/answer.h"
#include "tuner/answer/framework_plans.h"
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

// Five passes that hardly differ.
CaseRecord trial(const char* schedule, double predicted_s, double measured_s) {
  const double s = measured_s, little = 1e-3 * s;
  return run_of_passes(schedule, predicted_s, {s - little, s, s + little, s - 2 * little, s + 2 * little});
}

class AnswerOfTrials : public testing::Test {
 protected:
  AnswerOfTrials() {
    commands::Selection selection;
    selection.layer.fields.set(&LayerShape::batch, 2);
    selection.layer.fields.set(&LayerShape::model_dim, 2048);
    chosen_ = commands::chosen_model({}, selection, profile_);
    answer_.chosen = &chosen_;
    answer_.profile = &profile_;
    answer_.trial_layers = 1;
    answer_.ranking = rank({chosen_, profile_, {}, {}}, {&find_schedule("fsmoe"), &find_schedule("tutel")});
  }
  Profile profile_ = find_profile("testbed-b");
  commands::ChosenModel chosen_;
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

TEST_F(AnswerOfTrials, TheVerdictSaysWhatIsSafeAndWhatWasGained) {
  RankedSchedule &fsmoe = answer_.ranking[0], &tutel = answer_.ranking[1];
  fsmoe.forward_s = fsmoe.backward_s = 1;
  tutel.forward_s = tutel.backward_s = 1.02;
  answer_.no_trials_reason = "nothing was run";
  EXPECT_EQ(verdict_of(answer_), "predicted 1.020x over tutel, not run");
  answer_.no_trials_reason.reset();
  const auto said = [&](double fsmoe_s, double tutel_s) {
    answer_.trials = {{trial("fsmoe", 2, fsmoe_s)}, {trial("tutel", 2.04, tutel_s)}};
    return verdict_of(answer_);
  };
  // 3 % off and 0.5 % behind, which is no reason to leave the plan: 2.05 / 2.06.
  EXPECT_EQ(said(2.06, 2.05), "within the error: predicted 1.020x over tutel, ran slower (0.995x)");
  EXPECT_EQ(said(2.01, 2.07), "safe: predicted 1.020x over tutel, ran 1.030x");  // at most 1.5 % off
  EXPECT_EQ(said(4, 2.04), "not safe: fsmoe was predicted 1.020x over tutel, ran slower (0.510x)");
  answer_.trials[0].record.status = CaseStatus::invalid;
  EXPECT_EQ(verdict_of(answer_), "not safe: predicted 1.020x over tutel, not run");
  answer_.trials.clear();
  answer_.no_trials_reason = "nothing was run";
  std::swap(answer_.ranking[0], answer_.ranking[1]);
  tutel.forward_s = 3;
  EXPECT_EQ(verdict_of(answer_), "none is predicted faster than tutel");
  answer_.ranking.erase(answer_.ranking.begin());
  EXPECT_EQ(verdict_of(answer_), "predicted fastest");
}

TEST_F(AnswerOfTrials, WhatTheUserHasNowIsShownAndNeverRecommended) {
  answer_.current = answer_.ranking[1];
  answer_.trials = {{trial("fsmoe", 1, 1)}, {trial("tutel", 1, 1.5)}, {trial("tutel", 1, 0.5), true}};
  EXPECT_EQ(recommended(answer_).schedule->name, "fsmoe");
  EXPECT_NE(text_of(answer_).find("tutel (yours)"), std::string::npos);
  answer_.current->notes = {{PriceNote::Kind::degree_above, "found 64, treated as 2, one row a chunk"},
                            {PriceNote::Kind::derived, "what others are"}};
  EXPECT_NE(text_of(answer_).find("tutel (yours): degree above T_rank: found 64"), std::string::npos);
  EXPECT_EQ(text_of(answer_).find("what others are"), std::string::npos);
}

TEST_F(AnswerOfTrials, RunsThatAllFailedMakeNothingSafe) {
  answer_.trials = {{trial("fsmoe", 1, 1)}, {trial("tutel", 1, 1)}};
  for (Trial& t : answer_.trials) t.record.status = CaseStatus::invalid;
  EXPECT_NE(text_of(answer_).find("the predictions are unchecked"), std::string::npos) << text_of(answer_);
}

TEST_F(AnswerOfTrials, ASingleScheduleHasNoOther) {
  answer_.ranking.resize(1);
  EXPECT_NE(text_of(answer_).find("no other schedule was compared"), std::string::npos) << text_of(answer_);
}

TEST_F(AnswerOfTrials, PassesThatOverlapOverrideNoPlan) {
  const double plan_s = answer_.ranking[0].total_s();
  const auto used = [&](const std::vector<double>& first, const std::vector<double>& second) {
    answer_.trials = {{run_of_passes("fsmoe", plan_s, first)}, {run_of_passes("tutel", plan_s, second)}};
    return recommended(answer_).schedule->name;
  };
  EXPECT_EQ(used({10, 11, 12, 13}, {6, 7, 8, 9.9}), "tutel");
  EXPECT_EQ(used({10, 11, 12, 13}, {6, 7, 8, 10.1}), "fsmoe") << "the ranges overlap";
  EXPECT_EQ(used({10, 11, 12}, {6, 7, 8}), "fsmoe") << "three passes say nothing";
  EXPECT_EQ(used({10, 10, 10, 10}, {9.95, 9.95, 9.95, 9.95}), "fsmoe") << "half a percent is no reason";
  // Of nine passes the medians lie within the 2nd to the 8th (binomial: 2 % are outside).
  EXPECT_EQ(used({1, 10, 10, 10, 10, 10, 10, 10, 99}, {1, 8, 8, 8, 8, 8, 8, 8, 99}), "tutel");
  EXPECT_EQ(used({1, 2, 10, 10, 10, 10, 10, 10, 99}, {1, 8, 8, 8, 8, 8, 8, 8, 99}), "fsmoe");
}

// All schedules take the same time; passes have a long tail, as those of a busy machine have.
TEST_F(AnswerOfTrials, NoiseAloneRarelyChangesTheChoice) {
  constexpr int kAnswers = 2000;
  std::mt19937_64 draw(5);
  std::lognormal_distribution<double> seconds(0, 0.5);
  answer_.ranking = rank({chosen_, profile_, {}, {}}, {&find_schedule("fsmoe"), &find_schedule("tutel"),
                                                       &find_schedule("ds-moe"), &find_schedule("lina")});
  for (const size_t passes : {4U, 5U, 6U, 12U, 40U}) {
    int changed = 0, medians_changed = 0;
    for (int i = 0; i < kAnswers; ++i) {
      answer_.trials.clear();
      for (const RankedSchedule& row : answer_.ranking) {
        std::vector<double> times(passes);
        for (double& s : times) s = seconds(draw);
        answer_.trials.push_back({run_of_passes(std::string(row.schedule->name), 1, times)});
      }
      changed += &recommended(answer_) != &answer_.ranking.front();
      const double first_s = run_s(answer_.trials.front().record);
      medians_changed += std::ranges::any_of(answer_.trials, [&](const Trial& t) { return run_s(t.record) < first_s; });
    }
    EXPECT_LT(changed, 0.05 * kAnswers) << passes << " passes";
    EXPECT_GT(medians_changed, 0.5 * kAnswers) << "else nothing is to be resisted";
  }
}

TEST_F(AnswerOfTrials, RunsFarOffAreDoubtfulAndSaySo) {
  const double fsmoe_s = answer_.ranking[0].total_s(), tutel_s = answer_.ranking[1].total_s();
  const auto said = [&](double times) {
    answer_.trials = {{trial("fsmoe", fsmoe_s, times * fsmoe_s)}, {trial("tutel", tutel_s, tutel_s)}};
    return text_of(answer_);
  };
  EXPECT_EQ(said(1.24).find("./moetune doctor"), std::string::npos);
  EXPECT_FALSE(is_doubtful(answer_));
  for (const double times : {4.5, 0.7}) {
    const std::string text = said(times);
    EXPECT_NE(text.find("SAFE?  no: "), std::string::npos) << text;
    EXPECT_NE(text.find(fmt::format("runs are up to {:.0f} % off: ranks may share cores", 100 * std::abs(times - 1))),
              std::string::npos)
        << text;
    EXPECT_TRUE(is_doubtful(answer_));
  }
  said(2);
  answer_.trials[1].record.summary.set("core_slowdown", 1.6);
  EXPECT_NE(large_error_text(answer_).find("other load"), std::string::npos)
      << "the slow one is not the one that is off";
  answer_.trials[0].record.summary.set("core_slowdown", 1.6);
  EXPECT_EQ(large_error_text(answer_),
            "runs are up to 100 % off: cores were slow during runs (a probe took 1.60 times its best time)");
  answer_.trials[0].record.summary.set("core_slowdown", 1.4);
  EXPECT_NE(large_error_text(answer_).find("other load"), std::string::npos) << "too little to be the cause";
  said(0.5);
  EXPECT_NE(large_error_text(answer_).find("other load"), std::string::npos);
  answer_.prices_slowdown = 1.9;
  EXPECT_EQ(
      large_error_text(answer_),
      "runs are up to 50 % off: while prices were measured, cores were slow (a probe took 1.90 times its best time "
      "since then); measure again");
  answer_.trials[0].record.status = CaseStatus::invalid;
  EXPECT_EQ(worst_error(answer_), 0) << "a run that broke its rules says nothing of predictions";
}

// All that there may be to say at once, and much of it.
TEST_F(AnswerOfTrials, IsAtMost25LinesWhateverThereIsToSay) {
  std::vector<const Schedule*> all;
  for (const Schedule& schedule : schedules()) all.push_back(&schedule);
  answer_.ranking = rank({chosen_, profile_, {}, {}}, all);
  for (RankedSchedule& row : answer_.ranking) {
    row.expert_sums_s = 1e-3;
    for (int i = 0; i < 40; ++i) {
      row.notes.insert({PriceNote::Kind::nearest, fmt::format("alltoall inter {}", 100 + i),
                        fmt::format(" priced by the row of {} ranks", 200 + i)});
      row.notes.insert({PriceNote::Kind::origin, fmt::format("kind {}", i),
                        "something that was borrowed from some row that is far away from it"});
    }
  }
  answer_.cluster = "testbed-b";
  answer_.emulated = true;
  chosen_.model_on_cluster = "E 8, which the model leaves open; L 256, elsewhere 1024";
  FittedProfile fitted;
  for (const char* what : {"alltoall inter 8", "allgather intra 4", "gemm float32"})
    fitted.rows.push_back({what, {}, {}});
  answer_.fitted = &fitted;
  const FoundShapes found = find_shapes({.chosen = chosen_,
                                         .global_batch = chosen_.model.shape.layer.batch * 8,
                                         .profile = profile_,
                                         .schedules = {&find_schedule("tutel"), &find_schedule("fsmoe")}});
  ASSERT_GT(found.ranked.size(), 1u);
  answer_.shapes = &found;
  answer_.current = answer_.ranking[5];
  answer_.current->degree_forward = 7;
  for (const RankedSchedule& row : answer_.ranking)
    if (row.is_usable()) answer_.trials.push_back({trial(row.schedule->name.data(), row.total_s(), 2 * row.total_s())});
  answer_.trials.resize(2);
  answer_.neighbours = {{Phase::forward, 1, 0.1}, {Phase::backward, 1, 0.2}};
  answer_.records_path = "results/r.jsonl";
  answer_.profile_path = "results/p.toml";
  answer_.trace_path = "t.json";
  answer_.next = "./moetune layerbench";
  const std::string text = text_of(answer_);
  EXPECT_LE(std::ranges::count(text, '\n'), 25) << text;
  for (const char* part :
       {"prices: 8", " notes on them; ", "predictions are up to 100.0 % off", "degrees one step off", "\nFILES  ",
        "(yours)", "fit: 3 rows GOOD", "replicated experts", "every run below is emulated", "E 8, which"})
    EXPECT_NE(text.find(part), std::string::npos) << part << '\n' << text;
  answer_.top = 30;
  const std::string longer = text_of(answer_);
  EXPECT_GT(std::ranges::count(longer, '\n'), 100);
  EXPECT_NE(longer.find("prices: kind 39: something"), std::string::npos) << longer;
}

TEST_F(AnswerOfTrials, WhatAFrameworkLacksStandsBesideItsName) {
  constexpr std::array<std::string_view, 1> kTutel{"tutel"}, kFsmoe{"fsmoe"}, kNone{"lina"};
  const std::array<commands::Framework, 4> made_up{{{"A", "a", true, kFsmoe},
                                                    {"B", "b", true, kTutel},
                                                    {"C", "c", true, {}, kFsmoe, "hooks"},
                                                    {"D", "d", true, kNone}}};
  const RankedShape fsmoe{chosen_.model, answer_.ranking[0]}, tutel{chosen_.model, answer_.ranking[1]};
  answer_.plans_by_framework = {{&made_up[0], {fsmoe, tutel}},
                                {&made_up[1], {tutel}},
                                {&made_up[2], {fsmoe}},
                                {&made_up[3], {}, Refusal{.reason = "has no lina"}}};
  const std::string text = text_of(answer_);
  EXPECT_NE(text.find("SET IT all settings: ./moetune export a  (formats: a, b, c)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n       c: except for hooks; d: has no lina\n"), std::string::npos) << text;
  const double slower = fsmoe.total_s() / tutel.total_s() - 1;
  for (const auto& [key, plan] : {std::pair{"a", &fsmoe}, {"b", &tutel}, {"c", &fsmoe}}) {
    const size_t at = text.find(fmt::format("\n  {}  ", key));
    ASSERT_NE(at, std::string::npos) << text;
    const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at);
    EXPECT_NE(line.find(plan->best.schedule->name), std::string::npos) << line;
    EXPECT_NE(line.find(plan == &fsmoe ? "+0.0 %" : fmt::format("{:+.1f} %", 100 * (1 / (1 + slower) - 1))),
              std::string::npos)
        << line;
  }
  // A run decides between the rows of the answer's own shape, as it does for the recommendation.
  answer_.trials = {{trial("fsmoe", fsmoe.total_s(), 3 * tutel.total_s())},
                    {trial("tutel", tutel.total_s(), 2 * tutel.total_s())}};
  EXPECT_EQ(best_of(answer_, answer_.plans_by_framework[0])->best.schedule->name, "tutel");
  answer_.plans_by_framework[0].rows[1].model.shape.parallel.zero = 1;
  EXPECT_EQ(best_of(answer_, answer_.plans_by_framework[0])->best.schedule->name, "fsmoe") << "that shape was not run";
}

// Every framework in a shape of its own, each too long for one line.
TEST_F(AnswerOfTrials, KeepsItsLinesAndWidthWhateverFrameworksRun) {
  answer_.cluster = "testbed-b";
  answer_.next = "./moetune layerbench";
  answer_.neighbours = {{Phase::forward, 1, 0.1}, {Phase::backward, 1, 0.2}};
  for (const commands::Framework& framework : commands::frameworks()) {
    RankedShape plan{chosen_.model, answer_.ranking[1]};
    plan.model.micro_batches = 128 + static_cast<int>(answer_.plans_by_framework.size());
    ParallelShape& p = plan.model.shape.parallel;
    p.dp = 128;
    p.mp = 8;
    p.ep = 256;
    p.esp = 4;
    p.pp = 16;
    p.zero = 1;
    p.recompute = Recompute::full;
    if (!framework.runs_all_schedules()) answer_.plans_by_framework.push_back({&framework, {plan}, std::nullopt, 0.05});
  }
  answer_.plans_by_framework.back() = answer_.plans_by_framework.front();
  const std::string text = text_of(answer_);
  EXPECT_LE(std::ranges::count(text, '\n'), 25) << text;
  EXPECT_NE(text.find("    128 of 2 gpipe, ZeRO 1, recompute full\n"), std::string::npos) << text;
  EXPECT_NE(text.find("deepspeed, megatron-overlap: slower (--all); tutel: as tutel"), std::string::npos) << text;
  EXPECT_NE(text.find("search gap"), std::string::npos) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.size() <= 120 || line.find("./moetune ") != std::string::npos) << line;
}

TEST_F(AnswerOfTrials, NothingLeftIsOneLine) {
  for (RankedSchedule& row : answer_.ranking)
    row.refusal = Refusal{.kind = Refusal::Kind::too_large, .reason = "too large"};
  EXPECT_THROW(recommended(answer_), Unsupported);
}

}  // namespace
}  // namespace moe::tuner
