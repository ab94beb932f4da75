#include "moe/prices/fit.h"

#include <cmath>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

constexpr double kAlpha = 1.75e-4, kBeta = 3.06e-10;

/// FSMoE's sizes: 2^18 .. 24 x 2^18 floats; relative noise of standard deviation `noise`.
std::vector<FitSample> samples_of(double alpha, double beta, double noise = 0, uint64_t seed = 1) {
  std::vector<FitSample> samples;
  for (uint64_t i = 1; i <= 24; ++i) {
    const double size = 4.0 * static_cast<double>(i << 18);
    const double factor = 1 + noise * random_normal(seed, random_stream_id("noise"), i);
    samples.push_back({size, (alpha + beta * size) * factor});
  }
  return samples;
}

TEST(FitLinear, IsExactOnExactData) {
  const LinearFit fit = fit_linear(samples_of(kAlpha, kBeta), "alltoall");
  EXPECT_NEAR(fit.alpha_s / kAlpha, 1, 1e-10);
  EXPECT_NEAR(fit.beta / kBeta, 1, 1e-12);
  EXPECT_NEAR(fit.r_squared, 1, 1e-14);
  ASSERT_TRUE(fit.held_out_error);
  EXPECT_NEAR(*fit.held_out_error, 0, 1e-12);
  EXPECT_EQ(fit.range[0], 4.0 * (1 << 18));
  EXPECT_EQ(fit.range[1], 4.0 * 24 * (1 << 18));
  EXPECT_EQ(fit.samples, 24u);
  EXPECT_FALSE(fit.alpha_clamped);
}

TEST(FitLinear, GivesTheKnownAnswer) {
  // y = 1, 3, 4, 4 at x = 1, 2, 3, 4: slope 1, intercept 1/2, residuals 1 of a total of 6.
  const LinearFit fit = fit_linear({{1, 1}, {2, 3}, {3, 4}, {4, 4}}, "known");
  EXPECT_NEAR(fit.beta, 1, 1e-12);
  EXPECT_NEAR(fit.alpha_s, 0.5, 1e-12);
  EXPECT_NEAR(fit.r_squared, 1 - 1.0 / 6, 1e-12);
  EXPECT_EQ(fit.r_squared, fit.r_squared_kept);
  // Each in turn: 8/3 for 1, 16/7 for 3, 23/7 for 4; without the fourth slope 1.5, intercept -1/3, so through the
  // origin: 19/14; at 4 that is 38/7 for 4. Off by 5/3, 5/21, 5/28, 5/14.
  ASSERT_TRUE(fit.held_out_error);
  EXPECT_NEAR(*fit.held_out_error, 25.0 / 84, 1e-12);
  EXPECT_NEAR(*fit.held_out_worst, 5.0 / 3, 1e-12);
}

TEST(FitLinear, FindsTheLineUnderNoise) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const LinearFit fit = fit_linear(samples_of(kAlpha, kBeta, 0.01, seed), "noisy");
    EXPECT_NEAR(fit.beta / kBeta, 1, 0.02) << seed;
    EXPECT_NEAR(fit.alpha_s, kAlpha, 1e-4) << seed;
    EXPECT_GT(fit.r_squared, 0.99) << seed;
    EXPECT_GT(*fit.held_out_error, 0);
    EXPECT_LT(*fit.held_out_error, 0.03) << seed;
  }
}

TEST(FitLinear, ClampsAlphaAtZeroAndSaysSo) {
  const LinearFit fit = fit_linear({{1, 0.5}, {2, 2}, {3, 3.5}}, "below");  // alpha would be -1
  EXPECT_TRUE(fit.alpha_clamped);
  EXPECT_EQ(fit.alpha_s, 0);
  EXPECT_NEAR(fit.beta, (0.5 + 4 + 10.5) / 14, 1e-12);
  EXPECT_LT(fit.r_squared, 1);
}

TEST(FitLinear, CountsTheStartsOfASample) {
  std::vector<FitSample> samples;
  for (int gemms = 1; gemms <= 3; ++gemms)
    for (int i = 1; i <= 4; ++i)
      samples.push_back({i * 1e10 * gemms, gemms * 9.24e-5 + i * 1e10 * gemms * 4.42e-14, static_cast<double>(gemms)});
  const LinearFit fit = fit_linear(samples, "gemm");
  EXPECT_NEAR(fit.alpha_s / 9.24e-5, 1, 1e-9);
  EXPECT_NEAR(fit.beta / 4.42e-14, 1, 1e-12);
  EXPECT_EQ(fit.range, (Range{1e10, 4e10})) << "of one GEMM";
}

TEST(FitLinear, DoesNotDependOnTheOrderOfSamples) {
  auto samples = samples_of(kAlpha, kBeta, 0.01);
  const LinearFit forward = fit_linear(samples, "x");
  std::reverse(samples.begin(), samples.end());
  const LinearFit backward = fit_linear(samples, "x");
  EXPECT_NEAR(forward.beta / backward.beta, 1, 1e-12);
  EXPECT_NEAR(*forward.held_out_error, *backward.held_out_error, 1e-12);
}

// alpha and beta beside a curve are those of the least squares of relative errors, and so is r^2.
TEST(FitCurve, TellsRSquaredOfTheLineThatItKeeps) {
  std::vector<FitSample> samples;
  for (const auto& [size, us] : {std::pair{1e3, 10.0},
                                 {1e4, 11.0},
                                 {1e5, 20.0},
                                 {1e6, 400.0},
                                 {2e6, 800.0},
                                 {4e6, 1600.0},
                                 {8e6, 4800.0},
                                 {16e6, 9700.0}})
    samples.push_back({size, us * 1e-6});
  LinearFit fit = fit_linear(samples, "allreduce");
  fit_curve(samples, "allreduce", fit);
  ASSERT_FALSE(fit.points.empty());
  double mean = 0, off = 0, all = 0;
  for (const FitSample& s : samples) mean += s.seconds / 8;
  for (const FitSample& s : samples) {
    off += std::pow(s.seconds - fit.alpha_s - fit.beta * s.size, 2);
    all += std::pow(s.seconds - mean, 2);
  }
  EXPECT_NEAR(fit.r_squared, 1 - off / all, 1e-9);
  EXPECT_LT(fit.r_squared, 0.7);
  if (fit.set_aside.empty()) {
    EXPECT_EQ(fit.r_squared, fit.r_squared_kept);
  }
}

TEST(FitLinear, HoldsNothingOutOfFewSizes) {
  EXPECT_TRUE(fit_linear({{1, 1}, {2, 2}, {3, 3}}, "x").held_out_error);
  const LinearFit fit = fit_linear({{1, 1}, {1, 1}, {1, 1}, {2, 2}}, "x");
  EXPECT_FALSE(fit.held_out_error || fit.held_out_worst) << "one size would be left";
  EXPECT_EQ(fit.weak, "too few sizes to judge it");
}

TEST(FitLinear, RefusesWhatIsNoLine) {
  const auto message = [](std::vector<FitSample> samples) {
    return error_of<BadInput>([&] { fit_linear(std::move(samples), "gemm float32"); });
  };
  EXPECT_EQ(message({}), "gemm float32: found 0 sizes, expected at least 2 to fit a line");
  EXPECT_EQ(message({{5, 1}, {5, 2}}), "gemm float32: found 1 size, expected at least 2 to fit a line");
  EXPECT_EQ(message({{1, 2}, {2, 2}, {4, 2}}).find("gemm float32: found times that do not grow with sizes"), 0u);
  EXPECT_EQ(message({{1, 2}, {2, 1}}).find("gemm float32: found times that do not grow with sizes"), 0u);
  EXPECT_EQ(message({{1, 1}, {2, -1}}), "gemm float32: found size 2 in -1 s, expected both > 0");
  EXPECT_EQ(message({{1, 1}, {2, std::nan("")}}), "gemm float32: found size 2 in nan s, expected both > 0");
}

CaseRecord measured(Fields parameters, double seconds, int line) {
  CaseRecord record;
  record.key = std::to_string(line);
  record.parameters = std::move(parameters);
  for (const auto& [name, value] : Fields{{"cluster", "tiny"}, {"nodes", 2}, {"ranks_per_node", 2}})
    record.parameters.set(name, value);
  record.summary = {{"median_s", seconds}};
  record.where = "r.jsonl:" + std::to_string(line);
  return record;
}

std::vector<CaseRecord> microbench() {
  std::vector<CaseRecord> cases;
  int line = 1;
  for (int i = 1; i <= 8; ++i) {
    const double n = i * 1048576;
    const Fields alltoall{{"op", "alltoall"}, {"network", "inter"}, {"ranks", 2}, {"bytes", n}};
    const Fields allgather{{"op", "allgather"}, {"network", "intra"}, {"ranks", 2}, {"bytes", int64_t{i} << 20}};
    const Fields gemm{{"op", "gemm"}, {"dtype", "float32"}, {"flops", 1e9 * i}, {"gemms", 1}};
    const Fields module{
        {"op", "module"}, {"name", "attention"}, {"phase", "backward"}, {"seq", 256}, {"flops", 1e9 * i}};
    const Fields order{{"op", "module"}, {"name", "order:tutel"}, {"phase", "forward"}, {"bytes", n}};
    cases.push_back(measured(order, 2e-5 + 5e-10 * n, ++line));
    cases.push_back(measured(alltoall, 2e-4 + 3e-10 * n, ++line));
    cases.push_back(measured(allgather, 3e-5 + 2e-10 * n, ++line));
    cases.push_back(measured(gemm, 9e-5 + 4e-14 * 1e9 * i, ++line));
    cases.push_back(measured(module, 1e-3 + 8e-14 * 1e9 * i, ++line));
  }
  CaseRecord failed = measured({{"op", "alltoall"}}, 0, ++line);
  failed.status = CaseStatus::error;
  cases.push_back(failed);
  return cases;
}

TEST(FitProfile, MakesARowOfEachKindOfCase) {
  std::vector<CaseRecord> cases = microbench();
  for (int i = 1; i <= 8; ++i)
    cases.push_back(measured({{"op", "host_copy"}, {"bytes", 1e6 * i}}, 1e-5 + 4e-11 * 1e6 * i, 100 + i));
  const FittedProfile fitted = fit_profile(cases, "mine", "measured");
  const Profile& profile = fitted.profile;
  EXPECT_EQ(profile.name, "mine");
  EXPECT_EQ(profile.nodes, 2);
  EXPECT_EQ(profile.ranks_per_node, 2);
  ASSERT_EQ(profile.comm.size(), 2u);
  EXPECT_EQ(profile.comm[0].op, Op::allgather);
  EXPECT_EQ(profile.comm[0].network, Network::intra);
  EXPECT_EQ(profile.comm[1].op, Op::alltoall);
  EXPECT_NEAR(profile.comm[1].alpha_s, 2e-4, 1e-12);
  EXPECT_NEAR(profile.comm[1].beta_s_per_byte, 3e-10, 1e-18);
  EXPECT_EQ(profile.comm[1].range_bytes, (Range{1048576, 8 * 1048576}));
  ASSERT_EQ(profile.compute.size(), 2u);
  EXPECT_NEAR(profile.compute[0].beta_s_per_flop, 4e-14, 1e-22);
  EXPECT_EQ(profile.compute[1].op, Op::host_copy);
  EXPECT_NEAR(profile.compute[1].alpha_s, 1e-5, 1e-12);
  EXPECT_NEAR(profile.compute[1].beta_s_per_byte, 4e-11, 1e-19);
  ASSERT_EQ(profile.modules.size(), 2u);
  EXPECT_EQ(profile.modules[0].seq, 256);
  EXPECT_EQ(profile.modules[0].phase, Phase::backward);
  EXPECT_NEAR(profile.modules[0].beta_s_per_flop, 8e-14, 1e-22);
  EXPECT_EQ(profile.modules[0].beta_s_per_byte, 0);
  EXPECT_NEAR(profile.modules[1].beta_s_per_byte, 5e-10, 1e-18);
  EXPECT_EQ(profile.modules[1].beta_s_per_flop, 0);
  EXPECT_EQ(profile.modules[1].range, (Range{1048576, 8 * 1048576}));
  EXPECT_NEAR(profile.modules[1].r_squared.value(), 1, 1e-12);
  EXPECT_TRUE(profile.modules[1].held_out_error.has_value());
  ASSERT_EQ(fitted.rows.size(), 6u);
  EXPECT_EQ(fitted.rows[0].what, "allgather intra 2");
  EXPECT_EQ(fitted.rows[2].what, "gemm float32");
  EXPECT_EQ(fitted.rows[3].what, "host_copy");
  EXPECT_EQ(fitted.rows[4].what, "attention backward 256");
  EXPECT_NEAR(fitted.rows[0].fit.r_squared, 1, 1e-12);
}

CaseRecord slowdown(const char* lane, const char* by, double factor, int line) {
  CaseRecord record = measured({{"op", "slowdown"}, {"lane", lane}, {"by", by}}, 1, line);
  record.summary.set("factor", factor);
  return record;
}

// What lanes do to each other and what a task costs are taken as they were measured; a slowdown of a few per cent is
// noise of the machine.
TEST(FitProfile, TakesSlowdownsAndTheOverheadOfATask) {
  auto cases = microbench();
  cases.push_back(slowdown("intra", "inter", 1.9, 90));
  cases.push_back(slowdown("compute", "intra", 1.5, 91));
  cases.push_back(slowdown("inter", "compute", 1.04, 92));
  cases.push_back(slowdown("intra", "copy", 1.3, 89));
  cases.push_back(measured({{"op", "overlap"}, {"lane", "inter"}, {"other", "intra"}}, 1, 93));
  cases.push_back(measured({{"op", "overhead"}}, 1, 94));
  cases.back().summary.set("crossing_s", 3e-6);
  const Profile profile = fit_profile(cases, "mine", "measured").profile;
  Contention expected;
  expected.intra_by_inter = 1.9;
  expected.compute_by_intra = 1.5;
  expected.intra_by_copy = 1.3;
  EXPECT_EQ(profile.contention, expected);
  EXPECT_EQ(profile.task_overhead_s, 3e-6);
  EXPECT_EQ(profile.comm.size(), 2u);
  cases.push_back(slowdown("inter", "disk", 2, 95));
  EXPECT_EQ(error_of<BadInput>([&] { fit_profile(cases, "n", "s"); }),
            "r.jsonl:95: slowdown: found 'inter by disk', expected two of inter, intra, compute, copy");
  cases.back() = slowdown("inter", "intra", 0.5, 96);
  EXPECT_EQ(error_of<BadInput>([&] { fit_profile(cases, "n", "s"); }),
            "r.jsonl:96: factor: found 0.5, expected at least 1");
}

TEST(FitProfile, RefusesRecordsOfTwoBackends) {
  auto cases = microbench();
  for (CaseRecord& record : cases) record.backend = "gloo";
  cases[2].backend = "nccl";
  EXPECT_EQ(error_of<BadInput>([&] { fit_profile(cases, "n", "s"); }),
            "r.jsonl:4: backend: found nccl, expected gloo as in the cases before");
}

TEST(FitProfile, RefusesRecordsByLine) {
  const auto message = [](Fields parameters, double seconds) {
    return error_of<BadInput>([&] { fit_profile({measured(std::move(parameters), seconds, 7)}, "n", "s"); });
  };
  EXPECT_EQ(message({{"network", "inter"}}, 1), "r.jsonl:7: op: found no such value, expected a text");
  EXPECT_EQ(message({{"op", "scan"}}, 1), "r.jsonl:7: op: found 'scan', expected a collective, gemm or module");
  EXPECT_EQ(message({{"op", "alltoall"}, {"network", "wifi"}}, 1),
            "r.jsonl:7: network: found 'wifi', expected inter or intra");
  EXPECT_EQ(message({{"op", "alltoall"}, {"network", "inter"}, {"ranks", 1}}, 1),
            "r.jsonl:7: ranks: found 1, expected at least 2");
  EXPECT_EQ(message({{"op", "alltoall"}, {"network", "inter"}, {"ranks", 5}}, 1),
            "r.jsonl:7: ranks: found 5 on the inter network of 2 x 2 ranks, expected at most 4");
  EXPECT_EQ(message({{"op", "alltoall"}, {"network", "intra"}, {"ranks", 3}}, 1),
            "r.jsonl:7: ranks: found 3 on the intra network of 2 x 2 ranks, expected at most 2");
  EXPECT_EQ(message({{"op", "alltoall"}, {"network", "intra"}, {"ranks", 2}, {"algorithm", "ring"}}, 1),
            "r.jsonl:7: algorithm: found 'ring', expected one of: direct, 1dh, 2dh");
  EXPECT_EQ(message({{"op", "module"}, {"name", "gate:my own"}, {"phase", "forward"}, {"flops", 8}}, 1),
            "r.jsonl:7: name: found 'gate:my own', expected letters, digits and . _ : + - @");
  EXPECT_EQ(message({{"op", "module"}, {"name", "attention"}, {"phase", "forward"}, {"seq", 0}}, 1),
            fmt::format("r.jsonl:7: seq: found 0, expected 1 to {}", INT64_MAX));
  EXPECT_EQ(message({{"op", "alltoall"}, {"network", "inter"}, {"ranks", 2}}, 1),
            "r.jsonl:7: bytes: found no such value, expected a number");
  EXPECT_EQ(message({{"op", "gemm"}, {"dtype", "half"}}, 1),
            "r.jsonl:7: dtype: unknown 'half', expected one of: float32, float16, bfloat16, float64");
  EXPECT_EQ(message({{"op", "gemm"}, {"dtype", "float32"}, {"flops", 8}}, 0),
            "r.jsonl:7: found size 8, starts 1 and median_s 0, expected all > 0");
  EXPECT_EQ(error_of<BadInput>([] { fit_profile({}, "n", "s"); }),
            "fit: found no measured case, expected records of a microbench");
}

TEST(FitProfile, RefusesAnOverheadThatIsNone) {
  for (const double seconds : {-1e-6, std::nan("")}) {
    auto cases = microbench();
    cases.push_back(measured({{"op", "overhead"}}, 1, 94));
    cases.back().summary.set("crossing_s", seconds);
    EXPECT_EQ(error_of<BadInput>([&] { fit_profile(cases, "n", "s"); }),
              fmt::format("r.jsonl:94: crossing_s: found {}, expected at least 0", seconds));
  }
}

// The others go on.
TEST(FitProfile, MarksWhatHasNoLine) {
  auto cases = microbench();
  for (CaseRecord& record : cases)
    if (record.status == CaseStatus::ok && record.parameters.text("op", "") == "gemm")
      record.summary.set("median_s", 1e3 / record.parameters.number("flops", ""));
  const FittedProfile fitted = fit_profile(cases, "mine", "measured");
  EXPECT_TRUE(fitted.profile.compute.empty());
  EXPECT_EQ(fitted.profile.comm.size(), 2u);
  ASSERT_EQ(fitted.profile.unusable.size(), 1u);
  EXPECT_EQ(fitted.profile.unusable[0].row, "gemm float32");
  EXPECT_TRUE(fitted.profile.unusable[0].reason.starts_with("found times that do not grow with sizes"));
  ASSERT_EQ(fitted.rows.size(), 5u);
  EXPECT_EQ(fitted.rows[2].what, "gemm float32");
  EXPECT_EQ(fitted.rows[2].unusable, fitted.profile.unusable[0].reason);
}

CaseRecord again(CaseRecord record, double seconds, int line, CaseStatus status = CaseStatus::ok) {
  record.parameters.set("again_of", record.key);
  record.key += fmt::format("/again/{}", line);
  record.summary.set("median_s", seconds);
  record.status = status;
  return record;
}

// Gives each case of an AlltoAll three repetitions of so many times its median.
std::vector<CaseRecord> with_repetitions(const std::vector<double>& of_median) {
  auto cases = microbench();
  for (CaseRecord& record : cases) {
    if (record.status != CaseStatus::ok || record.parameters.text("op", "") != "alltoall") continue;
    Samples seconds{"seconds", {}};
    for (const double times : of_median) seconds.values.push_back({times * record.summary.number("median_s", "")});
    record.samples = {seconds};
  }
  return cases;
}

TEST(FitProfile, IsWeakWhereRepetitionsContradictEachOther) {
  const auto weak = [](const std::vector<CaseRecord>& cases) {
    int rows = 0;
    for (const FittedRow& row : fit_profile(cases, "mine", "measured").rows) {
      if (!row.fit.weak) continue;
      ++rows;
      EXPECT_TRUE(row.what.starts_with("alltoall")) << row.what;
      EXPECT_TRUE(row.fit.weak->starts_with("repetitions of a size spread by ")) << *row.fit.weak;
    }
    return rows;
  };
  EXPECT_EQ(weak(with_repetitions({0.1, 1, 10})), 1);
  EXPECT_EQ(weak(with_repetitions({0.99, 1, 1.02})), 0);
  EXPECT_EQ(weak(with_repetitions({0.99, 1, 1, 1.02, 30})), 0);  // a single one that was disturbed
}

TEST(FitProfile, IsWeakWhereTwoFilesContradictEachOther) {
  for (const double times : {3.0, 1.1}) {
    auto cases = microbench();
    for (CaseRecord record : microbench()) {
      if (record.status != CaseStatus::ok || record.parameters.text("op", "") != "alltoall") continue;
      record.summary.set("median_s", times * record.summary.number("median_s", ""));
      cases.push_back(record);
    }
    for (const FittedRow& row : fit_profile(cases, "mine", "measured").rows)
      EXPECT_EQ(row.fit.weak.has_value(), times > 2 && row.what.starts_with("alltoall")) << row.what << " " << times;
  }
}

TEST(FitProfile, TakesTheBestAttemptAtACase) {
  auto cases = microbench();
  const double sound = cases[0].summary.number("median_s", "");
  cases[0].summary.set("median_s", 50 * sound);
  cases.push_back(again(cases[0], sound, 1));
  cases.push_back(again(cases[0], 20 * sound, 2));
  cases.push_back(again(cases[1], 9, 1));
  const auto best = best_attempts(cases);
  ASSERT_EQ(best.size(), cases.size() - 3);
  EXPECT_EQ(best[0].key, cases[0].key);
  EXPECT_EQ(best[0].summary.number("median_s", ""), sound);
  EXPECT_EQ(best[1].summary.number("median_s", ""), cases[1].summary.number("median_s", ""));
  for (const FittedRow& row : fit_profile(cases, "mine", "measured").rows) EXPECT_EQ(row.fit.samples, 8u) << row.what;
  cases.push_back(again(cases[1], 1e-9, 2, CaseStatus::wrong));
  cases.push_back(again(cases[1], 1e-9, 3));
  EXPECT_EQ(best_attempts(cases)[1].status, CaseStatus::wrong) << "what was wrong once isn't forgotten";
}

TEST(FitProfile, RefusesRecordsOfTwoClusters) {
  auto cases = microbench();
  cases[3].parameters.set("nodes", 4);
  EXPECT_EQ(error_of<BadInput>([&] { fit_profile(cases, "n", "s"); }),
            "r.jsonl:5: cluster: found tiny (4 x 2), expected tiny (2 x 2) as in the cases before");
}

}  // namespace
}  // namespace moe
