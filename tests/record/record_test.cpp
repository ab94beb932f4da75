#include "moe/record/record.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/base/version.h"
#include "moe/record/machine.h"
#include "moe/record/record_json.h"
#include "tests/base/error_of.h"
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
  for (auto status = CaseStatus::ok; status <= CaseStatus::error;
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
    return error_of<BadInput>([&] { record_line_from(changed, "f:1"); });
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

TEST(Record, AMeasuredTimelineIsBadInAColumnOrARow) {
  const std::string line = to_json_line(sample_case(1));
  const auto message = [&](const std::string& from, const std::string& to) {
    std::string changed = line;
    changed.replace(changed.find(from, changed.find("measured_timeline")), from.size(), to);
    return error_of<BadInput>([&] { record_line_from(changed, "f:1"); });
  };
  EXPECT_EQ(message("\"rank\":3", "\"rank\":-1"),
            "f:1: measured_timeline: rank: found -1, expected a whole number from 0 to 2147483647");
  EXPECT_EQ(message("\"start_s\"", "\"start\""),
            "f:1: measured_timeline.rows[0]: start_s: found no such key, expected a number");
  EXPECT_EQ(message("\"start_s\",", ""), "f:1: measured_timeline.rows[0]: found a list of 9, expected a list of 8");
  EXPECT_EQ(message("\"dispatch\"", "7"), "f:1: measured_timeline.rows[1]: kind: found 7, expected a text");
  EXPECT_EQ(message("0.5,", "0.1,"),
            "f:1: measured_timeline.rows[1]: end_s: found 0.1, expected a number from start_s = 0.125");
  EXPECT_EQ(message("\"rows\":[[", "\"rows\":[3,["), "f:1: measured_timeline.rows[0]: found 3, expected a list of 9");
}

CaseGroup again(const CaseGroup& group) {
  return std::get<CaseGroup>(record_line_from(to_json_line(group), "f.jsonl:1"));
}

TEST(Record, AGroupSurvivesItsLine) {
  CaseGroup group = sample_group(1);
  std::ranges::rotate(group.cases, group.cases.begin() + 2);  // what was refused stands first
  std::ranges::rotate(group.cases.begin() + 1, group.cases.begin() + 2, group.cases.end());
  const auto expected = cases_of(group);
  const CaseGroup read = again(group);
  ASSERT_EQ(read.cases.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same(read.cases[i], expected[i])) << expected[i].key;
  EXPECT_EQ(read.cases[3].where, "f.jsonl:1");
}

// Whatever cases share or don't: they read back as lines of their own would.
TEST(Record, RandomGroupsReadBackAsTheirCases) {
  uint64_t index = 0;
  const auto draw = [&](uint64_t most) { return random_bits(3, 0, index++) % most; };
  const auto scalar = [&]() -> Scalar {
    const Scalar kinds[] = {draw(2) == 0, static_cast<int64_t>(draw(3)), static_cast<double>(draw(3)),
                            0.1,          std::string("a\"\n"),          static_cast<double>(draw(1 << 20)) * 1e-9,
                            1e300};
    return kinds[draw(std::size(kinds))];
  };
  for (int round = 0; round < 500; ++round) {
    CaseGroup group{{{"layer", "L"}}, {}};
    for (uint64_t i = 0, cases = 1 + draw(6); i < cases; ++i) {
      CaseRecord& record = group.cases.emplace_back();
      record.key = fmt::format("{}/{}", draw(4) == 0 ? "a" : "plan/L", i);
      record.backend = draw(3) == 0 ? "local" : "none";
      record.emulated = draw(3) == 0;
      record.dilation = static_cast<double>(1 + draw(2));
      if (draw(3) == 0) record.status = CaseStatus::unsupported, record.reason = draw(2) == 0 ? "no" : "";
      if (draw(4) != 0) {
        record.schedule = fmt::format("s{}", draw(2));
        record.degree_forward = static_cast<int>(draw(3));
      }
      for (uint64_t f = draw(4); f-- > 0;) record.prediction.set(fmt::format("p{}", f), scalar());
      for (uint64_t f = draw(2); f-- > 0;) record.summary.set(fmt::format("s.{}", f), scalar());
      if (draw(2) == 0) record.bound_s = static_cast<double>(draw(2));
    }
    const CaseGroup read = again(group);
    std::map<std::string, CaseRecord> candidates_by_key;
    for (const CaseRecord& record : read.cases) candidates_by_key[record.key] = record;
    ASSERT_EQ(candidates_by_key.size(), group.cases.size());
    for (const CaseRecord& record : cases_of(group))
      ASSERT_TRUE(same(candidates_by_key.at(record.key), again(record))) << to_json_line(group);
  }
}

TEST(Record, AGroupIsReadStrictly) {
  const std::string line = to_json_line(sample_group(1));
  const auto message = [&](const std::string& from, const std::string& to) {
    std::string changed = line;
    EXPECT_NE(changed.find(from), std::string::npos) << from << line;
    changed.replace(changed.find(from), from.size(), to);
    return error_of<BadInput>([&] { record_line_from(changed, "f:1"); });
  };
  EXPECT_EQ(message("\"tables\":[", "\"tables\":[3,"), "f:1: tables[0]: found 3, expected an object");
  EXPECT_EQ(message("\"tables\":", "\"table\":"), "f:1: tables: found no such key, expected a list");
  EXPECT_EQ(message("\"rows\":[[", "\"rows\":[[1,"), "f:1: tables[0].rows[0]: found a list of 7, expected a list of 6");
  EXPECT_EQ(message("[\"s0\",", "[7,"), "f:1: tables[0].rows[0]: key: found 7, expected a text");
  EXPECT_EQ(message("\"columns\":[\"key\"", "\"columns\":[\"name\""),
            "f:1: tables[0].rows[0]: key: found no such key, expected a text");
  EXPECT_EQ(message("\"backend\":\"none\"", "\"backend\":1"),
            "f:1: tables[0].rows[0]: backend: found 1, expected a text");
  EXPECT_EQ(message("\"backend\":\"none\"", "\"summary\":5,\"summary.a\":1,\"backend\":\"none\""),
            "f:1: tables[0].rows[0]: found columns summary and summary.a, expected one of them");
  EXPECT_EQ(message("\"parameters\":{", "\"parameters\":[],\"p\":{"),
            "f:1: parameters: found a list of 0, expected an object");
}

TEST(Record, AFitSaysWhereItsRecordsComeFrom) {
  RunHeader run;
  EXPECT_EQ(fitted_from("r.jsonl", run, false), "fitted from r.jsonl");
  run.started = "2026-01-31T12:00:00Z";
  run.machine = {{"cpu", "CPU"}, {"cores", 64}, {"fingerprint", "0123456789abcdef"}};
  EXPECT_EQ(
      fitted_from("r.jsonl", run, true),
      "fitted from r.jsonl, measured 2026-01-31T12:00:00Z on 64 cores of CPU (machine 0123456789abcdef), emulated");
  run.argv = {"moetune", "import", "nccl-tests", "a.txt"};
  EXPECT_EQ(fitted_from("r.jsonl", run, false), "fitted from r.jsonl, imported 2026-01-31T12:00:00Z from nccl-tests");
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
  const auto message = [](auto call) { return error_of<BadInput>(call); };
  EXPECT_EQ(message([&] { fields.number("c", "f:3"); }), "f:3: c: found text, expected a number");
  EXPECT_EQ(message([&] { fields.whole("a", "f:3"); }), "f:3: a: found 2, expected a whole number");
  EXPECT_EQ(message([&] { fields.text("z", "f:3"); }), "f:3: z: found no such value, expected a text");
}

TEST(Stamp, TakesOfTheEnvironmentAnAllowListAlone) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  ::setenv("MOETUNE_TEST_SECRET", "hidden-value", 1);
  const RunHeader run = stamp_run(asking("d"));
  ::unsetenv("MOETUNE_TEST_SECRET");
  EXPECT_EQ(run.environment.text("OMP_NUM_THREADS", ""), "3");
  const std::string line = to_json_line(run);
  EXPECT_EQ(line.find("hidden-value"), std::string::npos);
  for (const char* name : {"HOME", "USER", "PATH", "PWD", "HOSTNAME"})
    EXPECT_EQ(line.find('"' + std::string(name) + '"'), std::string::npos);
}

TEST(Stamp, SaysWhatRanWhereAndWhen) {
  const RunHeader run = stamp_run(asking("d"));
  const auto read = std::get<RunHeader>(record_line_from(to_json_line(run), "f.jsonl:1"));
  EXPECT_EQ(read.schema, kRecordSchema);
  EXPECT_EQ(read.measurement, kMeasurement);
  EXPECT_EQ(read.argv, run.argv);
  EXPECT_EQ(read.config_digest, run.config_digest);
  EXPECT_EQ(read.config_digest.size(), 16u);
  EXPECT_EQ(read.version, version());
  EXPECT_EQ(read.build, run.build);
  EXPECT_GE(read.build.size(), 16u);
  EXPECT_EQ(read.started.size(), 20u);
  EXPECT_EQ(read.git, run.git);
  EXPECT_TRUE(read.git.has("commit"));
  EXPECT_EQ(read.machine, run.machine);
  EXPECT_GE(read.machine.whole("cores", ""), 1);
  EXPECT_GT(read.machine.whole("memory_bytes", ""), 0);
  EXPECT_EQ(read.machine.text("fingerprint", "").size(), 16u);
  EXPECT_EQ(read.conditions, run.conditions);
  EXPECT_FALSE(read.compiler.empty());
  for (const char* name : {"fmt", "spdlog", "Eigen", "nlohmann_json", "CLI11", "Boost", "benchmark", "zlib", "SQLite"})
    EXPECT_NE(read.libraries.text(name, "").find('.'), std::string::npos) << name;
}

TEST(Stamp, AnEndHasItsConditionsToo) {
  const EndMark end{"2025-01-01T00:00:00Z", {{"load1", 0.5}, {"gpu_held", std::string("none")}}};
  EXPECT_EQ(std::get<EndMark>(record_line_from(to_json_line(end), "f:1")).conditions, end.conditions);
  EXPECT_TRUE(std::get<EndMark>(record_line_from(R"({"kind":"end","ended":"t"})", "f:1")).conditions.empty());
}

TEST(Stamp, IsReadWithoutWhatOlderOnesLack) {
  const std::string older =
      R"({"kind":"run","schema":1,"started":"2024-05-01T12:00:00Z","argv":["moetune"],"config_digest":"0","git":{},)"
      R"("compiler":"gcc","libraries":{},"machine":{"cores":2},"environment":{}})";
  const auto read = std::get<RunHeader>(record_line_from(older, "f.jsonl:1"));
  EXPECT_EQ(read.measurement, 0);
  EXPECT_TRUE(read.conditions.empty());
  EXPECT_FALSE(read.machine.has("fingerprint"));
  std::string wrong = older;
  wrong.insert(wrong.size() - 1, R"(,"measurement":-1)");
  EXPECT_EQ(error_of<BadInput>([&] { record_line_from(wrong, "f:1"); }),
            fmt::format("f:1: measurement: found -1, expected a whole number from 0 to {}", INT64_MAX));
  wrong = older;
  wrong.insert(wrong.size() - 1, R"(,"conditions":7)");
  EXPECT_EQ(error_of<BadInput>([&] { record_line_from(wrong, "f:1"); }),
            "f:1: conditions: found 7, expected an object");
}

std::string digest(const RunInputs& question) { return stamp_run(question).config_digest; }

TEST(Digest, IsOfAllThatDecidesTheRecords) {
  const Scratch scratch;
  const std::string file = scratch.write("profile.toml", "a = 1"), second = scratch.write("grid.toml", "b = 1");
  const RunInputs question{{{"moetune"}, {"tune", "--seed=1"}}, {file, "", second}, {{"ranks", 4}}};
  std::set<std::string> digests{digest(question)};
  const auto differs = [&](const std::string& what, auto change) {
    RunInputs other = question;
    change(other);
    EXPECT_TRUE(digests.insert(digest(other)).second) << what;
  };
  differs("flag", [](RunInputs& q) { q.invocation.flags[1] = "--seed=2"; });
  differs("no flag", [](RunInputs& q) { q.invocation.flags.pop_back(); });
  differs("one flag", [](RunInputs& q) { q.invocation.flags = {"tune--seed=1"}; });
  differs("ranks", [](RunInputs& q) { q.ranks.set("ranks", 8); });
  differs("no ranks", [](RunInputs& q) { q.ranks = {}; });
  differs("contents", [&](RunInputs&) { scratch.write("grid.toml", "b = 2"); });
  differs("which file is which", [&](RunInputs& q) { std::swap(q.files[0], q.files[2]); });
  differs("environment", [](RunInputs&) { ::setenv("NCCL_ALGO", "Ring", 1); });
  ::unsetenv("NCCL_ALGO");
  for (int i = 0; i < 3; ++i) differs("a file that is gone", [](RunInputs& q) { q.files[0] = "/dev/null"; });
}

TEST(Digest, IsOfNothingElse) {
  const Scratch scratch;
  const RunInputs question{{{"moetune"}, {"tune"}}, {scratch.write("profile.toml", "a = 1")}, {}};
  const std::string before = digest(question);
  RunInputs other = question;
  other.invocation.argv = {"./build/moetune", "tune", "--json"};
  other.invocation.has_named_file = other.invocation.overwrite = true;
  other.files = {scratch.write("copy.toml", "a = 1")};
  ::setenv("MOETUNE_TEST", "1", 1);
  EXPECT_EQ(digest(other), before);
  ::unsetenv("MOETUNE_TEST");
  const RunHeader run = stamp_run(question);
  EXPECT_EQ(run.config_digest, before) << "whatever the machine does by now";
  EXPECT_TRUE(run.conditions.has("load1"));
}

}  // namespace
}  // namespace moe
