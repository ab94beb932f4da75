#include "commands/shared/run/op_records.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "tests/base/scratch.h"

namespace moe::commands {
namespace {

/// A series of 12 AlltoAlls, of which `seconds` says what each took.
template <class Seconds>
std::vector<CaseRecord> series_of(Seconds seconds) {
  std::vector<CaseRecord> records;
  for (int i = 1; i <= 12; ++i) {
    CaseRecord& record = records.emplace_back();
    record.key = fmt::format("op/alltoall/inter/2/{}", i);
    record.backend = "local";
    record.parameters = {{"cluster", "host"},  {"nodes", 2}, {"ranks_per_node", 2}, {"op", "alltoall"},
                         {"network", "inter"}, {"ranks", 2}, {"bytes", i * 1e6}};
    record.summary = {{"median_s", static_cast<double>(seconds(i))}};
  }
  return records;
}

double sound(int i) { return 1e-4 + i * 1e-3; }

CaseRecord again(CaseRecord record, int attempt, double seconds) {
  record.parameters.set("again_of", record.key);
  record.key += fmt::format("/again/{}", attempt);
  record.summary.set("median_s", seconds);
  return record;
}

TEST(ToRepeat, IsNothingOfASoundSeries) { EXPECT_TRUE(cases_to_repeat(series_of(sound)).empty()); }

TEST(ToRepeat, IsWhatWasDisturbed) {
  auto records = series_of([](int i) { return i == 4 ? 5 * sound(i) : sound(i); });
  EXPECT_EQ(cases_to_repeat(records), std::vector<std::string>{"op/alltoall/inter/2/4"});
  records.push_back(again(records[3], 1, 3 * sound(4)));
  EXPECT_EQ(cases_to_repeat(records), std::vector<std::string>{"op/alltoall/inter/2/4"})
      << "the better attempt is off too";
  records.push_back(again(records[3], 2, 4 * sound(4)));
  EXPECT_TRUE(cases_to_repeat(records).empty()) << "often enough";
  records.back().summary.set("median_s", sound(4));
  EXPECT_TRUE(cases_to_repeat(records).empty());
}

TEST(ToRepeat, IsAllOfASeriesThatShrinks) {
  const auto records = series_of([](int i) { return 1.0 / i; });
  EXPECT_EQ(cases_to_repeat(records).size(), 12U);
  auto one = records;
  one.resize(1);
  EXPECT_TRUE(cases_to_repeat(one).empty()) << "of one size no line is asked";
}

// A machine so busy that no line is left: rows with a reason instead of an error, the others go on.
TEST(MeasureAndFit, LeavesRowsWithAReason) {
  auto records = series_of([](int i) { return 1.0 / i; });
  for (CaseRecord record : series_of(sound)) {
    record.key += "/gather";
    record.parameters.set("op", "allgather");
    record.parameters.set("network", "intra");
    records.push_back(std::move(record));
  }
  const FittedProfile fitted = fit_profile(records, "host", "a test");
  EXPECT_EQ(fitted.profile.comm.size(), 1U);
  ASSERT_EQ(fitted.profile.unusable.size(), 1U);
  EXPECT_EQ(fitted.profile.unusable[0].row, "alltoall inter 2");
  const auto warnings = fit_warnings(fitted);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(warnings[0].text.starts_with(
      "alltoall inter 2 is unusable; operations that need it have no price: found times that"));
}

std::vector<measure::OpCase> few_cases() {
  std::vector<measure::OpCase> cases;
  for (const measure::OpCase& c : measure::real_cases(target_of("host", {}).cluster, "local"))
    if (c.op == Op::gemm || c.op == Op::allgather) cases.push_back(c);
  return cases;
}

// Of the slowest ranks: the 2nd least and the 2nd most of ten; of five there is none.
TEST(OpRecord, HasTheIntervalOfItsMedian) {
  const measure::OpCase op = few_cases().front();
  measure::OpResult result;
  for (const double seconds : {5.0, 1.0, 9.0, 3.0, 7.0}) result.seconds.push_back({0.5, seconds});
  EXPECT_FALSE(record_of(op, result, target_of("host", {})).summary.has("median_low_s"));
  for (const double seconds : {2.0, 10.0, 4.0, 8.0, 6.0}) result.seconds.push_back({seconds, 0.5});
  const Fields summary = record_of(op, result, target_of("host", {})).summary;
  EXPECT_EQ(summary.number("median_s", ""), 5.5);
  EXPECT_EQ(summary.number("median_low_s", ""), 2);
  EXPECT_EQ(summary.number("median_high_s", ""), 9);
}

// Asked after every series, and again after each repeat; what it names is timed as often as it says.
TEST(OpBench, TimesAgainWhatItIsToldTo) {
  const std::vector<measure::OpCase> cases = few_cases();
  std::vector<size_t> all, done(cases.size());
  for (size_t i = 0; i < cases.size(); ++i) all.push_back(i);
  int asked = 0;
  measure::OpSettings settings;
  settings.repetitions = 1;
  const measure::OpSink sink{[&](const measure::OpCase& c, const measure::OpResult&) { ++done[&c - cases.data()]; },
                             [&](std::span<const size_t> series) {
                               ++asked;
                               const size_t first = series.front();
                               return done[first] < 3 ? std::vector<size_t>{first} : std::vector<size_t>();
                             }};
  measure::bench_ops({}, cases, settings, sink, all);
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(done[i], i == 0 || cases[i].series() != cases[i - 1].series() ? 3U : 1U) << cases[i].key();
  EXPECT_EQ(asked, 6) << "of two series, each after every round";
}

// From --op to a price: 2DH's row prices layers that are dispatched by it.
TEST(DispatcherCases, PriceADispatcher) {
  const Target host = target_of("host", {});
  const Scratch scratch;
  RecordWriter writer(scratch.path("r.jsonl"));
  OpRequest request{.settings = {.repetitions = 2}, .sizes = {.begin = 1 << 10, .end = 1 << 16}};
  request.dispatchers = {"2dh"};
  const std::vector<CaseRecord> records = measure_ops(host, writer, request, [](double) {});
  ASSERT_EQ(records.size(), 14U);
  for (const CaseRecord& record : records) EXPECT_EQ(record.status, CaseStatus::ok) << record.reason;
  std::vector<CaseRecord> sound;
  for (CaseRecord record : records) {  // which small messages of threads are not
    record.summary.set("median_s", 1e-4 + 1e-9 * record.parameters.number("bytes", record.key));
    sound.push_back(std::move(record));
  }
  Profile profile = fit_profile(sound, "host", "a test").profile;
  std::set<std::string> rows;
  for (const CommRow& row : profile.comm) rows.insert(row_name(row));
  EXPECT_EQ(rows, (std::set<std::string>{"alltoall inter 4", "alltoall inter 4 2dh"}));

  LayerShape layer{.batch = 2, .seq = 32, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  layer.dispatcher = "2dh";
  const LayerCase shape =
      complete(layer, {.nodes = 2, .ranks_per_node = 2, .mp = 1, .ep = 4, .esp = 1}, Rounding::ragged);
  const LayerPricer pricer(profile, shape);
  const double bytes = whole_work(TaskKind::dispatch, Phase::forward, shape, Flow::sharded).bytes;
  EXPECT_NEAR(pricer.chunk_seconds(TaskKind::dispatch, Phase::forward, planned_rows(shape)), 1e-4 + 1e-9 * bytes, 1e-6);
  request.dispatchers = {"4dh"};
  EXPECT_THROW(measure_ops(host, writer, request, [](double) {}), BadInput);
}

}  // namespace
}  // namespace moe::commands
