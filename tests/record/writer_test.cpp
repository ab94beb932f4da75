#include "moe/record/writer.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/record/machine.h"
#include "moe/record/reader.h"
#include "moe/record/record_json.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"
#include "tests/record/sample_records.h"

namespace moe {
namespace {

TEST(RecordWriter, WritesARunThatReadsBack) {
  const Scratch scratch;
  const std::string path = scratch.path("new/folder/r.jsonl");
  {
    RunInputs question = asking("d1");
    question.ranks = {{"backend", "gloo"}};
    RecordWriter writer(path, question);
    EXPECT_FALSE(writer.resumed());
    for (int i = 0; i < 3; ++i) writer.append(sample_case(i));
    writer.end();
  }
  const auto runs = read_runs(path);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_TRUE(runs[0].ended);
  EXPECT_EQ(runs[0].header.argv, asking("d1").invocation.argv);
  EXPECT_EQ(runs[0].header.ranks.text("backend", ""), "gloo");
  ASSERT_EQ(runs[0].cases.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same(runs[0].cases[i], sample_case(i)));
  EXPECT_EQ(runs[0].cases[0].where, path + ":2");
}

// A run of that question; ended or broken off.
std::string left_by(const std::string& path, const std::string& flag, bool ended) {
  RecordWriter writer(path, asking(flag));
  writer.append(sample_case(0));
  if (ended) writer.end();
  return Scratch::read(path);
}

TEST(RecordWriter, EachLineIsThereAtOnce) {
  const Scratch scratch;
  RecordWriter writer(scratch.path("r.jsonl"), asking("d1"));
  for (const int i : {0, 1}) {
    writer.append(sample_case(i));
    EXPECT_EQ(std::ssize(read_last_run(writer.path()).cases), i + 1);
  }
}

TEST(RecordWriter, WhatFailsWithoutACaseLeavesTheFileAsItWas) {
  const Scratch scratch;
  RunInputs overwrites = asking("d2");
  overwrites.invocation.overwrite = true;
  const std::string none = scratch.path("none.jsonl");
  { const RecordWriter writer(none, overwrites); }
  EXPECT_FALSE(std::filesystem::exists(none));
  for (const bool ended : {false, true}) {
    const std::string path = scratch.path(fmt::format("r{}.jsonl", ended)), before = left_by(path, "d1", ended);
    for (const RunInputs& question : {asking("d1"), overwrites}) {
      { const RecordWriter writer(path, question); }
      EXPECT_EQ(Scratch::read(path), before);
    }
    RecordWriter writer(path, overwrites);
    writer.append(sample_case(1));
    EXPECT_EQ(read_runs(path).size(), 1u) << "the first case takes the place of what was there";
  }
}

TEST(RecordWriter, GoesOnWithARunThatWasBrokenOff) {
  const Scratch scratch;
  const std::string path = scratch.path("r.jsonl");
  {
    RecordWriter writer(path, asking("d1"));
    writer.append(sample_case(0));
    CaseRecord failed = sample_case(1);
    failed.status = CaseStatus::error;
    writer.append(failed);
  }
  RecordWriter writer(path, asking("d1"));
  EXPECT_TRUE(writer.resumed());
  EXPECT_EQ(writer.done(), 1u);
  ASSERT_NE(writer.find("case-0"), nullptr);
  EXPECT_TRUE(same(*writer.find("case-0"), sample_case(0)));
  EXPECT_EQ(writer.find("case-1"), nullptr) << "what failed is tried again";
  EXPECT_THROW(writer.append(sample_case(0)), WrongResult);
  writer.append(sample_case(1));
  EXPECT_NE(writer.find("case-1"), nullptr);
  writer.end();

  const auto run = read_last_run(path);
  EXPECT_EQ(run.resumed, 1);
  EXPECT_TRUE(run.ended);
  ASSERT_EQ(run.cases.size(), 2u);
  EXPECT_EQ(run.cases[1].status, CaseStatus::ok) << "the later record of a key counts";
}

TEST(RecordWriter, ACaseThatIsNotOkIsAnsweredUnlessItFailed) {
  const Scratch scratch;
  const std::string path = scratch.path("r.jsonl");
  constexpr std::array kStatuses{CaseStatus::ok,  CaseStatus::wrong,       CaseStatus::invalid,
                                 CaseStatus::oom, CaseStatus::unsupported, CaseStatus::error};
  {
    RecordWriter writer(path, asking("d1"));
    for (size_t i = 0; i < kStatuses.size(); ++i) {
      CaseRecord record = sample_case(static_cast<int>(i));
      record.status = kStatuses[i];
      writer.append(record);
    }
  }
  RecordWriter leader(path, asking("d1")), other(scratch.path("none"));
  other.add_finished_cases(leader.finished_case_lines());
  for (const RecordWriter* writer : {&leader, &other})
    for (size_t i = 0; i < kStatuses.size(); ++i) {
      const std::string key = sample_case(static_cast<int>(i)).key;
      const bool failed = kStatuses[i] == CaseStatus::oom || kStatuses[i] == CaseStatus::error;
      EXPECT_EQ(writer->finished_case(key) == nullptr, failed) << name_of(kStatuses[i]);
      EXPECT_EQ(writer->find(key) == nullptr, kStatuses[i] != CaseStatus::ok) << name_of(kStatuses[i]);
    }
}

TEST(RecordWriter, AppendsAnewOnlyWhatIsNotDone) {
  const Scratch scratch;
  const std::string path = scratch.path("r.jsonl");
  RecordWriter writer(path, asking("d1"));
  writer.append_new(sample_case(0));
  const auto size = std::filesystem::file_size(path);
  EXPECT_NE(writer.find(sample_case(0).key), nullptr);
  writer.append_new(sample_case(0));
  EXPECT_EQ(std::filesystem::file_size(path), size);
  writer.append_new(sample_case(1));
  EXPECT_GT(std::filesystem::file_size(path), size);
}

TEST(RecordWriter, BehindACompleteRunANewOneBegins) {
  const Scratch scratch;
  const std::string path = scratch.path("r.jsonl");
  const std::string before = left_by(path, "d1", true);
  for (const auto& [flag, other] : {std::pair{"d1", false}, {"d2", true}, {"d1", true}}) {
    testing::internal::CaptureStderr();
    RecordWriter writer(path, asking(flag));
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::ranges::count(said, '\n'), other) << "another question is not appended silently: " << said;
    EXPECT_FALSE(writer.resumed());
    EXPECT_EQ(writer.find("case-0"), nullptr);
    writer.end();
    EXPECT_THROW(writer.append(sample_case(1)), WrongResult);
    EXPECT_THROW(writer.end(), WrongResult);
  }
  EXPECT_EQ(read_runs(path).size(), 4u);
  EXPECT_TRUE(Scratch::read(path).starts_with(before)) << "nothing is overwritten";
}

TEST(RecordWriter, AnotherQuestionIsRefusedWhereItWouldMix) {
  const Scratch scratch;
  for (const bool ended : {false, true})
    for (const bool named : {false, true})
      for (const std::string flag : {"d1", "d2"}) {
        const std::string path = scratch.path(fmt::format("r{}{}{}.jsonl", ended, named, flag));
        const std::string before = left_by(path, "d1", ended);
        RunInputs question = asking(flag);
        question.invocation.alternative = "--overwrite";
        question.invocation.has_named_file = named;
        if (flag == "d2" && (named || !ended)) {
          const auto message = error_of<BadInput>([&] { RecordWriter(path, question); });
          EXPECT_TRUE(message.starts_with(path + ": found a run ")) << message;
          EXPECT_NE(message.find("--overwrite"), std::string::npos) << message;
          EXPECT_EQ(Scratch::read(path), before);
        } else {
          EXPECT_EQ(RecordWriter(path, question).resumed(), !ended);
        }
      }
}

TEST(RecordWriter, ARunWithoutACaseIsInNobodysWay) {
  const Scratch scratch;
  const std::string path = scratch.write("r.jsonl", to_json_line(stamp_run(asking("d1"))));
  RunInputs question = asking("d2");
  question.invocation.has_named_file = true;
  RecordWriter writer(path, question);
  EXPECT_FALSE(writer.resumed());
  writer.append(sample_case(0));
  EXPECT_EQ(read_runs(path).size(), 2u);
}

TEST(RecordWriter, OverwritingMakesRoomWhateverThereIs) {
  const Scratch scratch;
  for (const bool ended : {false, true})
    for (const std::string flag : {"d1", "d2"}) {
      const std::string path = scratch.path("r.jsonl");
      std::filesystem::remove(path);
      left_by(path, "d1", ended);
      RunInputs question = asking(flag);
      question.invocation.has_named_file = question.invocation.overwrite = true;
      {
        RecordWriter writer(path, question);
        EXPECT_FALSE(writer.resumed());
        writer.append(sample_case(5));
      }
      const auto runs = read_runs(path);
      ASSERT_EQ(runs.size(), 1u);
      ASSERT_EQ(runs[0].cases.size(), 1u);
      EXPECT_EQ(runs[0].cases[0].key, "case-5");
    }
  RunInputs question = asking("d1");
  question.invocation.overwrite = true;
  const std::string other = scratch.write("other", "# a readme\n");
  EXPECT_THROW(RecordWriter(other, question), BadInput);
  EXPECT_EQ(Scratch::read(other), "# a readme\n") << "records make room, nothing else does";
}

TEST(RecordWriter, AGroupIsOneLineAndReadsBackAsItsCases) {
  const Scratch scratch;
  const std::string path = scratch.path("r.jsonl");
  {
    RecordWriter writer(path, asking("d"));
    for (int i = 0; i < 3; ++i) writer.append(sample_group(i));
    EXPECT_THROW(writer.append(sample_group(1)), WrongResult) << "a key comes once";
  }
  const std::string text = Scratch::read(path);
  EXPECT_EQ(std::ranges::count(text, '\n'), 4);
  size_t parameters = 0;
  for (size_t at = text.find("\"batch\""); at != std::string::npos; at = text.find("\"batch\"", at + 1)) ++parameters;
  EXPECT_EQ(parameters, 3u) << "once a group";
  const auto run = read_last_run(path);
  ASSERT_EQ(run.cases.size(), 12u);
  constexpr size_t kRead[] = {0, 1, 3, 2};  // tables of cases with the same keys, one after the other
  for (size_t i = 0; i < 12; ++i)
    EXPECT_TRUE(same(run.cases[i], cases_of(sample_group(static_cast<int>(i / 4)))[kRead[i % 4]])) << run.cases[i].key;
  RecordWriter writer(path, asking("d"));
  EXPECT_TRUE(writer.resumed());
  EXPECT_EQ(writer.done(), 9u) << "what was refused is tried again";
}

TEST(RecordWriter, AKeyComesOncePerRun) {
  const Scratch scratch;
  RecordWriter writer(scratch.path("r.jsonl"), asking("d1"));
  writer.append(sample_case(0));
  EXPECT_THROW(writer.append(sample_case(0)), WrongResult);
}

TEST(RecordWriter, LeavesOtherFilesAlone) {
  const Scratch scratch;
  for (const std::string_view text : {"# a readme\n", "{\"a\": 1}\n", "x", "{\"kind\":\"end\",\"ended\":\"\"}"}) {
    const std::string path = scratch.write("other", text);
    EXPECT_THROW(RecordWriter(path, asking("d")), BadInput) << text;
    EXPECT_EQ(Scratch::read(path), text);
  }
  EXPECT_THROW(RecordWriter(scratch.path(""), asking("d")), BadInput) << "a folder";
  EXPECT_THROW(RecordWriter("/dev/null", asking("d")), BadInput);
  EXPECT_THROW(RecordWriter(scratch.path("other/below"), asking("d")), BadInput) << "below a file";
}

TEST(RecordWriter, AFileHasOneWriter) {
  const Scratch scratch;
  const std::string path = scratch.path("r.jsonl");
  auto first = std::make_unique<RecordWriter>(path, asking("d"));
  const auto message = error_of<BadInput>([&] { RecordWriter(path, asking("d")); });
  EXPECT_NE(message.find("in use by another process"), std::string::npos);
  first.reset();
  EXPECT_NO_THROW(RecordWriter(path, asking("d")));
}

}  // namespace
}  // namespace moe
