#include "moe/record/record.h"

#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/record/record_json.h"
#include "moe/record/stamp.h"
#include "tests/base/scratch.h"
#include "tests/record/sample_records.h"

namespace moe {
namespace {

CaseRecord again(const CaseRecord& record) {
  return std::get<CaseRecord>(record_line_from(to_json_line(record), "f.jsonl:1"));
}

TEST(Record, EveryFieldSurvivesItsLine) {
  const CaseRecord record = sample_case(1);
  EXPECT_TRUE(same(again(record), record));
  EXPECT_EQ(again(record).where, "f.jsonl:1");
  CaseRecord bare;
  bare.key = "bare";
  bare.backend = "none";
  EXPECT_TRUE(same(again(bare), bare));
}

TEST(Record, EveryStatusSurvives) {
  for (auto status = CaseStatus::ok; status <= CaseStatus::skipped;
       status = static_cast<CaseStatus>(static_cast<int>(status) + 1)) {
    CaseRecord record = sample_case(1);
    record.status = status;
    record.reason = "because of \"this\"\nand that";
    EXPECT_TRUE(same(again(record), record)) << name_of(status);
  }
}

TEST(Record, IsOneLineWhateverItSays) {
  CaseRecord record = sample_case(1);
  record.reason = "two\nlines \xff not UTF-8";
  const std::string line = to_json_line(record);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_TRUE(again(record).reason.starts_with("two\nlines "));
}

TEST(Record, NumbersThatAreNotFiniteReadBackAsNaN) {
  CaseRecord record = sample_case(1);
  record.summary.set("median_s", std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(again(record).summary.number("median_s", "")));
}

TEST(Record, ATimelineIsReadStrictly) {
  const std::string line = to_json_line(sample_case(1));
  const auto message = [&](const std::string& from, const std::string& to) {
    std::string changed = line;
    changed.replace(changed.find(from), from.size(), to);
    return message_of<BadInput>([&] { record_line_from(changed, "f:1"); });
  };
  EXPECT_EQ(message("\"lane\":\"inter\"", "\"lane\":7"), "f:1: timeline[1]: lane: found 7, expected a text");
  EXPECT_EQ(message("\"chunk\":1", "\"chunk\":4"),
            "f:1: timeline[1]: chunk: found 4, expected a whole number from 0 to 3");
  EXPECT_EQ(message("\"end_s\":0.1", "\"end_s\":-1"),
            "f:1: timeline[0]: end_s: found -1, expected a number from start_s = 0");
  EXPECT_EQ(message("\"end_s\":0.1", "\"end_s\":null"),
            "f:1: timeline[0]: end_s: found null, expected a number from start_s = 0");
  EXPECT_EQ(message("\"timeline\":[", "\"timeline\":[3,"), "f:1: timeline[0]: found 3, expected an object");
}

TEST(Record, UnknownKeysArePassedOver) {
  std::string line = to_json_line(sample_case(1));
  line.insert(1, R"("future": {"a": [1]}, )");
  EXPECT_NO_THROW(record_line_from(line, "f.jsonl:1"));
}

TEST(Fields, KeepTheirOrderAndKinds) {
  Fields fields{{"b", 1}, {"a", 2.0}, {"c", "text"}, {"d", true}};
  fields.set("b", 3);
  EXPECT_EQ(fields.begin()->first, "b");
  EXPECT_EQ(fields.whole("b", ""), 3);
  EXPECT_EQ(fields.number("b", ""), 3.0);
  EXPECT_EQ(fields.text("c", ""), "text");
  EXPECT_TRUE(std::holds_alternative<bool>(*fields.find("d")));
  const auto message = [](auto call) { return message_of<BadInput>(call); };
  EXPECT_EQ(message([&] { fields.number("c", "f:3"); }), "f:3: c: found text, expected a number");
  EXPECT_EQ(message([&] { fields.whole("a", "f:3"); }), "f:3: a: found 2, expected a whole number");
  EXPECT_EQ(message([&] { fields.text("z", "f:3"); }), "f:3: z: found no such value, expected a text");
}

TEST(Stamp, TakesOfTheEnvironmentAnAllowListAlone) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  ::setenv("MOETUNE_TEST_SECRET", "hidden-value", 1);
  const RunHeader run = stamp_run({"moetune", "tune"}, "d");
  ::unsetenv("MOETUNE_TEST_SECRET");
  EXPECT_EQ(run.environment.text("OMP_NUM_THREADS", ""), "3");
  const std::string line = to_json_line(run);
  EXPECT_EQ(line.find("hidden-value"), std::string::npos);
  for (const char* name : {"HOME", "USER", "PATH", "PWD", "HOSTNAME"})
    EXPECT_EQ(line.find('"' + std::string(name) + '"'), std::string::npos);
}

TEST(Stamp, SaysWhatRanWhereAndWhen) {
  const RunHeader run = stamp_run({"moetune", "tune", "--json"}, "abc");
  const auto read = std::get<RunHeader>(record_line_from(to_json_line(run), "f.jsonl:1"));
  EXPECT_EQ(read.schema, kRecordSchema);
  EXPECT_EQ(read.argv, run.argv);
  EXPECT_EQ(read.config_digest, "abc");
  EXPECT_EQ(read.started.size(), 20u);
  EXPECT_EQ(read.git, run.git);
  EXPECT_TRUE(read.git.has("commit"));
  EXPECT_EQ(read.machine, run.machine);
  EXPECT_GE(read.machine.whole("cores", ""), 1);
  EXPECT_GT(read.machine.whole("memory_bytes", ""), 0);
  EXPECT_FALSE(read.compiler.empty());
  EXPECT_FALSE(read.libraries.empty());
}

TEST(Digest, TellsTextsApart) {
  EXPECT_EQ(digest_of("a").size(), 16u);
  EXPECT_EQ(digest_of("a"), digest_of("a"));
  EXPECT_NE(digest_of("a"), digest_of("b"));
}

}  // namespace
}  // namespace moe
