// Which cases are compared, which are refused and why, and what is said of those that are compared.
#include <cmath>
#include <functional>
#include <limits>

#include "commands/regress/compare.h"
#include "moe/base/check.h"
#include "tests/commands/regress/compare_files.h"

namespace moe::regress {
namespace {

using Cases = std::vector<CaseRecord>;

class CompareCases : public RecordFiles {
 protected:
  Comparison compared(const std::string& base, const std::string& head, const std::vector<std::string>& items = {},
                      const std::string& by = "family", const std::string& floor = "") const {
    CaseFilter filter(items);
    return compare_sides(read_side(base), read_side(head), filter, by, NoiseFloors(floor));
  }
  Comparison compared(const Cases& base, const Cases& head) const {
    return compared(file("base.jsonl", base), file("head.jsonl", head));
  }
  /// Compares a layer with itself as `change` leaves it and its run.
  Comparison after(const std::function<void(RunHeader&, CaseRecord&)>& change) const {
    RunHeader run = made_header();
    CaseRecord layer = made_layer("L", "fsmoe", 1);
    const std::string base = file("base.jsonl", lines_of(run, {layer}));
    change(run, layer);
    return compared(base, file("head.jsonl", lines_of(run, {layer})));
  }
  std::string floor(double between, const RunHeader& run = made_header()) const {
    CaseRecord record;
    record.key = kFloorKey;
    record.backend = "none";
    record.summary = {{"between_sessions", between}, {"within_session", between / 2}};
    return file("floor.jsonl", lines_of(run, {record}));
  }
};

TEST_F(CompareCases, TimeIsTheMedianOfTheSlowestRank) {
  CaseRecord record = made_layer("L", "fsmoe", 1);
  record.samples = {{"seconds", {{9}}}, {"total_s", {{1, 5}, {2, 3}, {4, 1}}}};
  EXPECT_EQ(main_time(record).sample, "total_s");
  EXPECT_EQ(main_time(record).seconds, 4);
  record.samples.pop_back();
  EXPECT_EQ(main_time(record).seconds, 9);
}

// Which operations are measured again is chance: they were off the line of their series.
TEST_F(CompareCases, RepeatsAreNoCases) {
  CaseRecord again = made_op("alltoall", 9);
  again.parameters.set("again_of", again.key);
  again.key += "/again/1";
  const Comparison c = compared({made_op("alltoall", 3), again}, {made_op("alltoall", 3)});
  EXPECT_EQ(c.cases.size(), 1U);
  EXPECT_TRUE(c.only_in_base.empty());
}

TEST_F(CompareCases, RatiosAreSortedAndWithoutAFloorNeverConfirmed) {
  const Comparison c =
      compared({made_layer("L", "fsmoe", 1), made_layer("L", "tutel", 2), made_op("alltoall", 3)},
               {made_layer("L", "fsmoe", 0.5), made_layer("L", "tutel", 4), made_op("alltoall", 3.05)});
  ASSERT_EQ(c.cases.size(), 3U);
  EXPECT_EQ(c.cases[0].key, "run/L/tutel");
  EXPECT_DOUBLE_EQ(c.cases[0].ratio(), 2);
  EXPECT_EQ(c.cases[0].verdict, Verdict::ambiguous);
  EXPECT_EQ(c.cases[0].group, "run tutel");
  EXPECT_EQ(c.cases[1].verdict, Verdict::same);
  EXPECT_EQ(c.cases[1].group, "op alltoall");
  EXPECT_EQ(c.cases[2].verdict, Verdict::ambiguous);
  EXPECT_TRUE(c.refused.empty());
}

TEST(CompareVerdicts, CountFrom3PercentAndFromTheFloor) {
  EXPECT_EQ(time_verdict(1.0299, 0), Verdict::same);
  EXPECT_EQ(time_verdict(1.0301, 0), Verdict::slower);
  EXPECT_EQ(time_verdict(1 / 1.0301, 0), Verdict::faster);
  EXPECT_EQ(time_verdict(1.09, 0.1), Verdict::same);
  EXPECT_EQ(time_verdict(1.11, 0.1), Verdict::slower);
  EXPECT_EQ(time_verdict(1 / 1.11, 0.1), Verdict::faster);
  EXPECT_EQ(time_verdict(1.02, std::nullopt), Verdict::same);
  EXPECT_EQ(time_verdict(9, std::nullopt), Verdict::ambiguous);
  EXPECT_EQ(time_verdict(0.1, std::nullopt), Verdict::ambiguous);
  EXPECT_EQ(memory_verdict(1.0099), Verdict::same);
  EXPECT_EQ(memory_verdict(1.0101), Verdict::slower);
  EXPECT_EQ(memory_verdict(1 / 1.0101), Verdict::faster);
}

TEST_F(CompareCases, MemoryIsAMetricOfItsOwnAndNeedsNoFloor) {
  const Comparison c = after([](RunHeader&, CaseRecord& record) { record.summary = {{"peak_bytes", 1020}}; });
  EXPECT_EQ(c.cases.size(), 1U) << "BASE has none";
  CaseRecord old = made_layer("L", "fsmoe", 1), now = old;
  old.summary = {{"peak_bytes", 1000}};
  now.summary = {{"peak_bytes", 1020.0}};
  const Comparison both = compared(Cases{old}, Cases{now});
  ASSERT_EQ(both.cases.size(), 2U);
  EXPECT_EQ(both.cases[0].metric, Metric::memory);
  EXPECT_EQ(both.cases[0].verdict, Verdict::slower);
  EXPECT_EQ(both.cases[1].verdict, Verdict::same);
  EXPECT_EQ(both.groups.size(), 2U) << "means of time and of memory";
}

TEST_F(CompareCases, AFloorIsThatOfTheMachine) {
  const Cases base{made_layer("L", "fsmoe", 1)}, head{made_layer("L", "fsmoe", 1.2)};
  const auto verdict = [&](const std::string& floors) {
    return compared(file("base.jsonl", base), file("head.jsonl", head), {}, "family", floors).cases.at(0).verdict;
  };
  EXPECT_EQ(verdict(floor(0.1)), Verdict::slower);
  EXPECT_EQ(verdict(floor(0.2)), Verdict::same);
  RunHeader other = made_header();
  other.machine.set("cores", int64_t{9});
  EXPECT_EQ(verdict(floor(0.1, other)), Verdict::ambiguous);
}

TEST_F(CompareCases, AFloorThatIsNoneIsRefused) {
  for (const double bad : {-0.1, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(NoiseFloors(floor(bad)), BadInput) << bad;
  EXPECT_THROW(NoiseFloors("nosuch.jsonl"), BadInput);
  EXPECT_THROW(NoiseFloors(file("torn.jsonl", "no records\n")), BadInput);
}

TEST_F(CompareCases, WhatTimesDependOnIsRefusedWhereItDiffers) {
  const std::vector<std::pair<std::string, std::function<void(RunHeader&, CaseRecord&)>>> changes{
      {"cpu: made up against other", [](RunHeader& run, CaseRecord&) { run.machine.set("cpu", "other"); }},
      {"cores: 8 against 9", [](RunHeader& run, CaseRecord&) { run.machine.set("cores", int64_t{9}); }},
      {"cores: 8 against none",
       [](RunHeader& run, CaseRecord&) {
         run.machine = {{"cpu", "made up"}};
       }},
      {"memory_bytes: ", [](RunHeader& run, CaseRecord&) { run.machine.set("memory_bytes", int64_t{1} << 33); }},
      {"architecture: ", [](RunHeader& run, CaseRecord&) { run.machine.set("architecture", "aarch64"); }},
      {"threads: 2 against 3", [](RunHeader& run, CaseRecord&) { run.ranks.set("threads", int64_t{3}); }},
      {"threads: 2 against none", [](RunHeader& run, CaseRecord&) { run.ranks = {}; }},
      {"ranks: none against 4", [](RunHeader& run, CaseRecord&) { run.ranks.set("ranks", int64_t{4}); }},
      {"backend: local against gloo", [](RunHeader&, CaseRecord& record) { record.backend = "gloo"; }},
      {"emulated: no against yes", [](RunHeader&, CaseRecord& record) { record.emulated = true; }},
      {"dilation: 1 against 4", [](RunHeader&, CaseRecord& record) { record.dilation = 4; }},
      {"dtype: float32 against bfloat16",
       [](RunHeader&, CaseRecord& record) { record.parameters.set("dtype", "bfloat16"); }},
      {"dtype: float32 against none",
       [](RunHeader&, CaseRecord& record) {
         record.parameters = {{"batch", 4}};
       }},
      {"batch: 4 against 8", [](RunHeader&, CaseRecord& record) { record.parameters.set("batch", int64_t{8}); }},
      {"degree_forward: 2 against 3", [](RunHeader&, CaseRecord& record) { record.degree_forward = 3; }},
      {"degree_backward: 2 against 3", [](RunHeader&, CaseRecord& record) { record.degree_backward = 3; }},
      {"schedule: fsmoe against tutel", [](RunHeader&, CaseRecord& record) { record.schedule = "tutel"; }},
      {"HEAD: total_s: found a sample",
       [](RunHeader&, CaseRecord& record) { record.samples[1].values[0][1] = std::nan(""); }},
      {"HEAD: total_s: found a sample", [](RunHeader&, CaseRecord& record) { record.samples[1].values[0][1] = 0; }},
      {"HEAD: total_s: found an iteration without samples",
       [](RunHeader&, CaseRecord& record) { record.samples[1].values[0] = {}; }},
      {"HEAD: total_s: found an iteration without samples",
       [](RunHeader&, CaseRecord& record) { record.samples[1].values = {}; }},
      {"HEAD: found no samples of", [](RunHeader&, CaseRecord& record) { record.samples = {}; }},
      {"samples: total_s against seconds", [](RunHeader&, CaseRecord& record) { record.samples[1].name = "seconds"; }},
      {"status: ok -> invalid", [](RunHeader&, CaseRecord& record) { record.status = CaseStatus::invalid; }},
  };
  for (const auto& [why, change] : changes) {
    const Comparison c = after(change);
    EXPECT_TRUE(c.cases.empty() && c.broken.empty()) << why;
    ASSERT_EQ(c.refused.size(), 1U) << why;
    EXPECT_TRUE(c.refused[0].why.starts_with(why)) << c.refused[0].why;
  }
}

TEST_F(CompareCases, WhatTimesDoNotDependOnIsNot) {
  const std::vector<std::function<void(RunHeader&, CaseRecord&)>> changes{
      [](RunHeader& run, CaseRecord&) { run.machine.set("os", "another"); },
      [](RunHeader& run, CaseRecord&) { run.machine.set("memory_bytes", (int64_t{1} << 34) - 1000); },
      [](RunHeader& run, CaseRecord&) { run.machine.set("fingerprint", "of one side alone"); },
      [](RunHeader& run, CaseRecord&) { run.git = {}; },
      [](RunHeader&, CaseRecord& record) { record.parameters.set("a_later_key", 1.5); },
      [](RunHeader&, CaseRecord& record) {
        record.prediction = {{"total_s", 9.0}};
      }};
  for (const auto& change : changes) EXPECT_EQ(after(change).cases.size(), 1U);
}

TEST_F(CompareCases, DilationsOfOneRegimeMayDiffer) {
  CaseRecord base = made_layer("L", "fsmoe", 1), head = base;
  base.dilation = 20;
  for (const auto& [dilation, compared_too] :
       {std::pair(159.0, true), std::pair(161.0, false), std::pair(1.0, false)}) {
    head.dilation = dilation;
    EXPECT_EQ(compared(Cases{base}, Cases{head}).cases.size(), compared_too ? 1U : 0U) << dilation;
  }
}

TEST_F(CompareCases, AFingerprintDecidesWhereBothHaveOne) {
  RunHeader run = made_header();
  run.machine.set("fingerprint", "a");
  const std::string base = file("base.jsonl", lines_of(run, {made_layer("L", "fsmoe", 1)}));
  run.machine.set("cores", int64_t{9});
  EXPECT_EQ(compared(base, file("head.jsonl", lines_of(run, {made_layer("L", "fsmoe", 1)}))).cases.size(), 1U);
  run.machine.set("fingerprint", "b");
  const Comparison c = compared(base, file("head.jsonl", lines_of(run, {made_layer("L", "fsmoe", 1)})));
  EXPECT_EQ(c.refused.at(0).why, "fingerprint: a against b");
}

TEST_F(CompareCases, WhatBrokeIsBrokenWhateverTheMachine) {
  for (const auto& [status, broken_elsewhere] :
       {std::pair(CaseStatus::wrong, true), std::pair(CaseStatus::error, true), std::pair(CaseStatus::oom, false),
        std::pair(CaseStatus::unsupported, false)}) {
    const auto breaks = [status = status](RunHeader&, CaseRecord& record) {
      record.status = status;
      record.reason = "because";
      record.samples = {};
    };
    const Comparison here = after(breaks);
    ASSERT_EQ(here.broken.size(), 1U);
    EXPECT_EQ(here.broken[0].why, fmt::format("ok -> {}: because", name_of(status)));
    const Comparison elsewhere = after([&](RunHeader& run, CaseRecord& record) {
      breaks(run, record);
      run.machine.set("cores", int64_t{9});
    });
    EXPECT_EQ(elsewhere.broken.size(), broken_elsewhere ? 1U : 0U);
    EXPECT_EQ(elsewhere.refused.size(), broken_elsewhere ? 0U : 1U);
  }
}

TEST_F(CompareCases, WhatWasBrokenBeforeIsNoNews) {
  CaseRecord base = made_layer("L", "fsmoe", 1), head = base;
  base.status = CaseStatus::wrong;
  EXPECT_EQ(compared(Cases{base}, Cases{head}).repaired.at(0).why, "wrong -> ok");
  head.status = CaseStatus::error;
  const Comparison c = compared(Cases{base}, Cases{head});
  EXPECT_TRUE(c.broken.empty());
  EXPECT_EQ(c.refused.size(), 1U);
}

TEST_F(CompareCases, CasesOfOneSideAreNamed) {
  const Comparison c =
      compared({made_op("a", 1), made_op("b", 1), made_op("c", 1)}, {made_op("c", 1), made_op("d", 1)});
  EXPECT_EQ(c.only_in_base, (std::vector<std::string>{"op/a/1024", "op/b/1024"}));
  EXPECT_EQ(c.only_in_head, std::vector<std::string>{"op/d/1024"});
  EXPECT_EQ(c.cases.size(), 1U);
}

TEST_F(CompareCases, FoldersArePooled) {
  file("base/a.jsonl", Cases{made_op("a", 1)});
  file("base/b.jsonl", Cases{made_op("b", 2)});
  file("base/notes.txt", "no records");
  file("head/all.jsonl", Cases{made_op("a", 2), made_op("b", 2)});
  EXPECT_EQ(compared(folder_ + "/base", folder_ + "/head").cases.size(), 2U);
  file("base/again.jsonl", Cases{made_op("a", 3)});  // two launches meet one: their median
  const Comparison c = compared(folder_ + "/base", folder_ + "/head");
  ASSERT_EQ(c.cases.size(), 2U);
  EXPECT_EQ(c.cases[0].base, 2);
  EXPECT_EQ(c.cases[0].pairs, 1);
}

// Launches of a case in files of their own, as many of each side. Those of the head take `ratio` as long. In turns the
// sides alternate in time, else the head's come after the base's.
class CompareLaunches : public CompareCases {
 protected:
  Comparison launches(int pairs, double ratio, bool launches_alternate, const std::string& floor = "") {
    for (int i = 0; i < pairs; ++i) {
      const double noise = 1 + 0.002 * ((7 * i) % 5);  // the same in both launches of a pair
      write("base", i, launches_alternate ? 2 * i : i, made_op("a", noise));
      write("head", i, launches_alternate ? 2 * i + 1 : pairs + i,
            made_op("a", noise * ratio * (1 + 0.001 * ((3 * i) % 4))));
    }
    return compared(folder_ + "/base", folder_ + "/head", {}, "family", floor);
  }

 private:
  void write(const std::string& side, int number, int minute, const CaseRecord& record) {
    RunHeader run = made_header();
    run.started = fmt::format("2025-01-01T00:{:02}:00Z", minute);
    file(fmt::format("{}/{:02}.jsonl", side, number), lines_of(run, {record}));
  }
};

TEST_F(CompareLaunches, SixPairsTellTheSame) {
  const Comparison c = launches(6, 1.001, true);
  ASSERT_EQ(c.cases.size(), 1U);
  EXPECT_EQ(c.cases[0].pairs, 6);
  EXPECT_EQ(c.cases[0].verdict, Verdict::same);
  ASSERT_TRUE(c.cases[0].interval);
  EXPECT_LT(c.cases[0].interval->max, 1.03);
}

TEST_F(CompareLaunches, SixPairsMakeASuspectAndFurtherOnesConfirmIt) {
  const ComparedCase few = launches(6, 1.08, true).cases.at(0);
  EXPECT_EQ(few.verdict, Verdict::ambiguous);
  EXPECT_GT(few.pairs_needed, 0);
  EXPECT_EQ(launches(18, 1.08, true).cases.at(0).verdict, Verdict::slower);  // twelve fresh pairs: p = 2^-12
  EXPECT_EQ(launches(18, 0.92, true).cases.at(0).verdict, Verdict::faster);
}

TEST_F(CompareLaunches, SidesMeasuredApartNeedAFloor) {
  EXPECT_EQ(launches(18, 1.08, false).cases.at(0).verdict, Verdict::ambiguous);
  EXPECT_EQ(launches(18, 1.08, false, floor(0.05)).cases.at(0).verdict, Verdict::slower);
  EXPECT_EQ(launches(18, 1.08, false, floor(0.1)).cases.at(0).verdict, Verdict::same);
}

TEST_F(CompareLaunches, AWrongLaunchIsBroken) {
  launches(6, 1, true);
  CaseRecord bad = made_op("a", 1);
  bad.status = CaseStatus::wrong;
  file("head/99.jsonl", lines_of(made_header(), {bad}));
  EXPECT_EQ(compared(folder_ + "/base", folder_ + "/head").broken.size(), 1U);
}

TEST_F(CompareCases, OneKeyOfTwoQuestionsIsTwoCases) {
  CaseRecord a = made_op("gemm", 1), b = made_op("gemm", 5);
  a.parameters.set("cluster", "testbed-a");
  b.parameters.set("cluster", "testbed-b");
  file("base/a.jsonl", Cases{a});
  file("base/b.jsonl", Cases{b});
  file("head/a.jsonl", Cases{b});
  const Comparison c = compared(folder_ + "/base", folder_ + "/head");
  ASSERT_EQ(c.cases.size(), 1U);
  EXPECT_EQ(c.cases[0].base, 5);
  EXPECT_EQ(c.only_in_base.size(), 1U);
}

// A parameter that only some launches have tells them from the other side's, not from each other.
TEST_F(CompareCases, LaunchesThatDifferFromTheOtherSidesAreRefused) {
  RunHeader early = made_header(), late = made_header();
  early.started = "2026-01-01T00:00:00Z";
  late.started = "2026-01-02T00:00:00Z";
  CaseRecord plain = made_op("gemm", 1), one = plain, two = plain;
  one.parameters.set("iterations", int64_t{1});
  two.parameters.set("iterations", int64_t{2});
  file("base/a.jsonl", lines_of(late, {one}));
  file("base/b.jsonl", lines_of(early, {plain}));
  file("head/a.jsonl", Cases{two});
  const Comparison c = compared(folder_ + "/base", folder_ + "/head");
  EXPECT_TRUE(c.cases.empty());
  ASSERT_EQ(c.refused.size(), 1U);
  EXPECT_EQ(c.refused[0].why, "iterations: 1 against 2");
}

TEST_F(CompareCases, TheLastOfAKeyAndOfAFileCounts) {
  const std::string twice =
      lines_of(made_header(), {made_op("a", 7)}) + lines_of(made_header(), {made_op("a", 1), made_op("a", 2)});
  const Comparison c = compared(file("base.jsonl", twice), file("head.jsonl", Cases{made_op("a", 2)}));
  EXPECT_EQ(c.cases.at(0).base, 2);
}

TEST_F(CompareCases, ATornLineIsPassedOverAndOtherFilesAreRefused) {
  const std::string whole = lines_of(made_header(), {made_op("a", 1), made_op("b", 1)}, false);
  const std::string base = file("base.jsonl", whole.substr(0, whole.size() - 20));
  EXPECT_EQ(compared(base, file("head.jsonl", Cases{made_op("a", 1), made_op("b", 1)})).only_in_head.size(), 1U);
  for (const char* text : {"", "no records\n", "{\"kind\":\"end\",\"ended\":\"\"}\n"})
    EXPECT_THROW(read_side(file("bad.jsonl", text)), BadInput) << text;
  EXPECT_THROW(read_side(folder_ + "/nosuch"), BadInput);
  std::filesystem::create_directories(folder_ + "/empty");
  EXPECT_THROW(read_side(folder_ + "/empty"), BadInput);
}

TEST_F(CompareCases, FiltersKeepAndGroupsGather) {
  const Cases base{made_layer("L", "fsmoe", 1), made_layer("K", "fsmoe", 1), made_layer("L", "tutel", 1)},
      head{made_layer("L", "fsmoe", 2), made_layer("K", "fsmoe", 8), made_layer("L", "tutel", 1)};
  const std::string b = file("base.jsonl", base), h = file("head.jsonl", head);
  const auto cases = [&](const std::vector<std::string>& items) { return compared(b, h, items).cases.size(); };
  EXPECT_EQ(cases({"schedule=fsmoe"}), 2U);
  EXPECT_EQ(cases({"schedule=fsmoe", "tutel"}), 3U);
  EXPECT_EQ(cases({"schedule=fsmoe", "layer=K"}), 1U);
  EXPECT_EQ(cases({"batch=4"}), 3U);
  EXPECT_EQ(cases({"batch=5"}), 0U);
  for (const std::string bad : {"schedule", "=fsmoe", "nosuch=1"}) EXPECT_THROW(cases({bad}), BadInput) << bad;
  const Comparison c = compared(b, h, {}, "layer");
  ASSERT_EQ(c.groups.size(), 2U);
  EXPECT_EQ(c.groups[0].group, "K");
  EXPECT_DOUBLE_EQ(c.groups[0].ratio, 8);
  EXPECT_DOUBLE_EQ(c.groups[1].ratio, std::sqrt(2.0));
  EXPECT_EQ(c.groups[1].cases, 2);
  EXPECT_THROW(compared(b, h, {}, "nosuch"), BadInput);
}

TEST(Family, OfATaskIsItsName) {
  CaseRecord task = made_op("task", 1);
  EXPECT_EQ(family_of(task), "op task");
  task.parameters.set("name", std::string("gate:gshard"));
  EXPECT_EQ(family_of(task), "op gate:gshard");
  EXPECT_EQ(family_of(made_layer("small", "fsmoe", 1)), "run fsmoe");
}

}  // namespace
}  // namespace moe::regress
