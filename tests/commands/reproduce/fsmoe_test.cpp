// FSMoE's tables: readings, volumes by hand, and the audit's parts by brute force.
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "commands/reproduce/fsmoe_contention.h"
#include "commands/reproduce/fsmoe_tables.h"
#include "commands/reproduce/printed_rows.h"
#include "commands/reproduce/published.h"
#include "commands/reproduce/study.h"
#include "moe/base/check.h"
#include "moe/search/layer_search.h"

namespace moe::reproduce {
namespace {

const CommRow& row_of(const Profile& profile, Op op, int ranks) {
  for (const CommRow& row : profile.comm)
    if (row.op == op && row.ranks == ranks) return row;
  throw BadInput("no such row");
}

double ours_of(const Report& report, std::vector<std::string> labels, const std::string& convention) {
  for (const Comparison& c : report.comparisons)
    for (const Figure& f : c.figures)
      if (f.labels == labels && f.convention == convention && f.ours) return *f.ours;
  ADD_FAILURE() << "no figure";
  return std::nan("");
}

// Mixtral-7B on testbed B by the formulas of FSMoE section 4.1, B L = 4096, M = 4096, N_MP = 4, float32.
TEST(FsmoeTable2, CollectivesByHand) {
  Study study;
  const Report report = fsmoe_table2(study);
  const auto ours = [&](const std::string& op) {
    return ours_of(report, {"testbed-b", "mixtral-7b", op == "allreduce" ? "backward" : "forward", op}, "k f = 2.4");
  };
  const double tokens = 4096, dim = 4096, bytes = 4;
  const double alltoall = 2.4 * tokens * dim / 4 * bytes, mp = tokens * dim * bytes;
  EXPECT_NEAR(ours("alltoall"), 2 * (1.75e-4 + 3.06e-10 * alltoall), 1e-12);
  EXPECT_NEAR(ours("allgather"), 2 * 3.2e-5 + 1.68e-10 * (4 * alltoall + mp), 1e-12);
  EXPECT_NEAR(ours("reducescatter"), 2 * 3.91e-5 + 1.67e-10 * (4 * alltoall + mp), 1e-12);
  const double parameters = 2 * dim * 128 * (8 + 2);  // q and out of 8 heads, k and v of 2, on each rank
  EXPECT_NEAR(ours("allreduce"), 8.37e-5 + 5.99e-10 * parameters * bytes, 1e-12);
  EXPECT_NEAR(ours_of(report, {"testbed-b", "mixtral-7b", "backward", "experts"}, "mac"),
              2 * (3 * 9.24e-5 + 4.42e-14 * 3 * 2.4 * tokens * dim / 4 * 14336), 1e-9);
}

// Mixtral-7B on testbed B: 1024 tokens a rank and 2.4 times as many rows of 4096 floats, there and back.
TEST(FsmoeTable2, OrderMovesTokensAndRows) {
  Study study;
  const Report report = fsmoe_table2(study);
  const TextTable& orders = report.tables.back();
  ASSERT_EQ(orders.rows.size(), 8U);
  const double bytes = 2 * 1024 * (1 + 2.4) * 4096 * 4;
  EXPECT_EQ(orders.rows.back(),
            (std::vector<std::string>{"testbed-b", "mixtral-7b", "backward", "1.2", fmt::format("{:.1f}", bytes / 1e6),
                                      fmt::format("{:.0f}", bytes / 1.2e-3 / 1e9)}));
}

// The squared correlation of sizes and times, which is r^2 of a least squares line.
double correlation_squared(const std::vector<std::pair<double, double>>& samples) {
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  for (const auto& [size, seconds] : samples)
    ++n, x += size, y += seconds, xx += size * size, yy += seconds * seconds, xy += size * seconds;
  const double covariance = n * xy - x * y;
  return covariance * covariance / ((n * xx - x * x) * (n * yy - y * y));
}

TEST(FsmoeFig5, SquaredCorrelationsOfPublishedSamples) {
  Study study;
  const Report report = fsmoe_fig5(study);
  for (const auto& [gpu, convention] : {std::pair("a100", "A100"), {"h100", "H100"}})
    for (const std::string op : {"allreduce", "alltoall", "allgather", "reducescatter"}) {
      std::vector<std::pair<double, double>> samples;
      for (const PublishedCollective& c : published_collectives())
        if (c.gpu == gpu && c.op == op && c.ranks == 8 && c.bytes > 1e6 && c.bytes < 26e6)
          samples.emplace_back(c.bytes, c.seconds);
      ASSERT_EQ(samples.size(), 5U);
      EXPECT_NEAR(ours_of(report, {op}, convention), correlation_squared(samples), 1e-9) << gpu << ' ' << op;
    }
  const Comparison& c = report.comparisons.front();
  EXPECT_EQ(std::ranges::count(c.figures, std::vector<std::string>{"gemm"}, &Figure::labels), 4);
  for (const Figure& f : c.figures) {
    EXPECT_GT(*f.ours, 0.9) << f.labels.front() << ' ' << f.convention;
    EXPECT_LE(*f.ours, 1);
  }
  const auto& times = report.tables.front().rows;
  ASSERT_EQ(times.size(), 3U);
  EXPECT_EQ(times[0][1], "under 10 ms");
  EXPECT_TRUE(times[0][2].starts_with("under ")) << times[0][2];
  EXPECT_EQ(times[2][2], "102 s (H200, float32)");  // 22:34:58 to 22:36:40
}

// What the summary's page says: by DeepSpeed's rule for sharded experts its speedups come out -5 to +39 % off, by the
// other readings -56 to +793 %.
TEST(FsmoeFigures, DuplicatedTokensExplainDeepSpeedMoe) {
  std::map<std::string, std::pair<double, double>> off;  // least and most, by reading
  for (const auto& [figure, assumed] :
       {std::pair{"fsmoe-fig6", "fsmoe-models"}, {"fsmoe-fig7", "fsmoe-models"}, {"fsmoe-fig8", "fsmoe-pipeline"}}) {
    const Assumptions assumptions = find_assumptions(assumed);
    Study study;
    study.assumed = &assumptions;
    for (const Comparison& c : reproduce(figure, study).comparisons)
      for (const Figure& f : c.figures) {
        if (std::ranges::find(f.labels, "ds-moe") == f.labels.end() || !f.ours) continue;
        auto& [least, most] = off.try_emplace(f.convention, 9e9, -9e9).first->second;
        least = std::min(least, *f.ours / *f.paper - 1);
        most = std::max(most, *f.ours / *f.paper - 1);
      }
  }
  EXPECT_NEAR(off.at("monta-baseline").first, -0.05, 5e-3);
  EXPECT_NEAR(off.at("monta-baseline").second, 0.386, 5e-3);
  EXPECT_LT(off.at("ds-moe").first, -0.5);
  EXPECT_NEAR(off.at("replicated").second, 7.93, 5e-3);
}

TEST(FsmoeReading, PresetsAreTheFiles) {
  for (const Testbed testbed : {Testbed::a, Testbed::b}) {
    const Profile ours = profile_of(preset_reading(testbed)), file = find_profile(std::string(name_of(testbed)));
    ASSERT_EQ(ours.comm.size(), file.comm.size());
    for (size_t i = 0; i < file.comm.size(); ++i) {
      EXPECT_EQ(ours.comm[i].beta_s_per_byte, file.comm[i].beta_s_per_byte);
      EXPECT_EQ(ours.comm[i].alpha_s, file.comm[i].alpha_s);
    }
    ASSERT_EQ(ours.compute.size(), file.compute.size());
    EXPECT_EQ(ours.compute.front().beta_s_per_flop, file.compute.front().beta_s_per_flop);
  }
}

TEST(FsmoeReading, EachChoiceChangesWhatItSays) {
  Reading r = preset_reading(Testbed::b);
  r.unit = BetaUnit::element;
  EXPECT_NEAR(row_of(profile_of(r), Op::alltoall, 8).beta_s_per_byte, 3.06e-10 / 4, 1e-22);
  EXPECT_EQ(row_of(profile_of(r), Op::alltoall, 8).alpha_s, 1.75e-4);
  r = preset_reading(Testbed::a);
  EXPECT_NEAR(row_of(profile_of(r), Op::allgather, 8).beta_s_per_byte, 2.3477633843e-7 / 4000, 1e-20);
  r.unit = BetaUnit::byte;
  EXPECT_NEAR(row_of(profile_of(r), Op::allgather, 8).beta_s_per_byte, 2.3477633843e-7 / 1000, 1e-20);
  r.order = BetaOrder::printed;
  EXPECT_NEAR(row_of(profile_of(r), Op::allgather, 8).beta_s_per_byte, 2.32e-9, 1e-20);
  r.unit = BetaUnit::element;
  EXPECT_NEAR(row_of(profile_of(r), Op::alltoall, 6).beta_s_per_byte, 2.21e-10 / 4, 1e-20);
  r = preset_reading(Testbed::b);
  r.gemm = GemmBeta::mac;
  EXPECT_NEAR(profile_of(r).compute.front().beta_s_per_flop, 2.21e-14, 1e-26);
  r.capacity = Capacity::k_times_f;
  EXPECT_EQ(grid_of(r).name, "fsmoe-b-k2");
  r.attention = AttentionBy::gemm;
  EXPECT_TRUE(profile_of(r).modules.empty());
  r = preset_reading(Testbed::a);
  r.attention = AttentionBy::driver;
  std::set<int64_t> seqs;
  for (const ModuleRow& row : profile_of(r).modules) seqs.insert(row.seq.value_or(0));
  EXPECT_EQ(seqs, (std::set<int64_t>{256, 512, 1024, 2048}));
}

TEST(FsmoeReading, EveryCombinationOnce) {
  EXPECT_EQ(all_readings(Testbed::a).size(), 2U * 2 * 4 * 2 * 2);
  EXPECT_EQ(all_readings(Testbed::b).size(), 2U * 3 * 2 * 2);
  for (const Testbed testbed : {Testbed::a, Testbed::b}) {
    const auto readings = all_readings(testbed);
    const std::set<Reading> distinct(readings.begin(), readings.end());
    EXPECT_EQ(distinct.size(), readings.size());
    EXPECT_TRUE(distinct.contains(preset_reading(testbed)));
  }
}

// The least squares: no other beta makes the experts of Table 2 closer.
TEST(FsmoeReading, ExpertsOfTable2AreTheBestFit) {
  for (const Testbed testbed : {Testbed::a, Testbed::b}) {
    Reading r = preset_reading(testbed);
    r.gemm = GemmBeta::table2;
    const Profile profile = profile_of(r);
    for (const std::string model : {"gpt2-xl", "mixtral-7b"}) {
      const Ffn ffn = model == "gpt2-xl" ? Ffn::gpt : Ffn::mixtral;
      const double dim = ffn == Ffn::gpt ? 1600 : 4096, hidden = ffn == Ffn::gpt ? 6400 : 14336;
      const double ranks = testbed == Testbed::a ? 8 : 4;
      const double flops = 2 * gemms_of(ffn) * 2.4 * 4096 * dim / ranks * hidden;
      const auto error = [&](double beta, double alpha) {
        double sum = 0;
        for (const PrintedOp& op : printed_fsmoe_table2())
          if (op.testbed == name_of(testbed) && op.model == model && op.op == "experts") {
            const double passes = op.phase == "backward" ? 2 : 1;
            sum += std::pow(passes * (alpha + flops * beta) - op.ms * 1e-3, 2);
          }
        return sum;
      };
      for (const ComputeRow& row : profile.compute) {
        if (row.op != Op::expert || row.ffn != ffn) continue;
        const double best = error(row.beta_s_per_flop, row.alpha_s);
        EXPECT_LT(best, error(row.beta_s_per_flop * 1.001, row.alpha_s));
        EXPECT_LT(best, error(row.beta_s_per_flop * 0.999, row.alpha_s));
      }
    }
  }
}

// Table 2 tells the units: the preset's are closer than the other on either testbed.
TEST(FsmoeTable2, ConfirmsThePresetsUnits) {
  for (const Testbed testbed : {Testbed::a, Testbed::b}) {
    Reading r = preset_reading(testbed);
    const double preset = table2_error(r);
    r.unit = r.unit == BetaUnit::byte ? BetaUnit::element : BetaUnit::byte;
    EXPECT_LT(2 * preset, table2_error(r));
  }
}

TEST(FsmoeTable5, IsTheSweepOfThePreset) {
  Study study;
  const Report report = fsmoe_table5(study);
  const Profile profile = find_profile("testbed-b");
  const Grid grid = find_grid("fsmoe-b");
  const auto chosen = table5_schedules();
  for (const commands::ScheduleSummary& s :
       commands::summarise(commands::sweep({profile, grid, chosen, {}, {}}), chosen))
    if (s.schedule != "tutel") {
      EXPECT_EQ(ours_of(report, {"testbed-b", std::string(s.schedule)}, "volumes x f"), s.speedup);
    }
}

// Degrees out of 1, 2, 4, 8, each pair of them tried on a sample of layers; layers of a sample weigh alike.
TEST(FsmoeDegrees, PowersAreWhatTryingAllPairsGives) {
  const Profile profile = find_profile("testbed-b");
  Grid grid = find_grid("fsmoe-b");
  LayerSearch search;
  int apart = 0;
  for (const GridLayer& layer : grid.layers) {
    ParallelShape shape;
    shape.nodes = 8;
    shape.ranks_per_node = 4;
    if (layer.shape.heads != 8) continue;  // heads change nothing: a third of the layers
    const LayerPricer pricer(profile, complete(layer.shape, shape, grid.rounding));
    double best = 1e9;
    bool differ = false;
    for (const int forward : {1, 2, 4, 8})
      for (const int backward : {1, 2, 4, 8}) {
        const double seconds = search.tune(find_schedule("fsmoe"), pricer, {forward, backward}).total_s();
        if (seconds < best * (1 - 1e-12)) best = seconds, differ = forward != backward;
      }
    apart += 3 * differ;
  }
  Study study;
  EXPECT_EQ(ours_of(fsmoe_degrees(study), {"testbed-b", "fsmoe", "1 2 4 8"}, "volumes x f"), apart);
}

TEST(FsmoeContention, FitsFsmoeAndLeavesOneLaneSchedulesAlone) {
  SweepStore sweeps;
  const Reading preset = preset_reading(Testbed::b);
  const auto fitted = with_fitted_contention(sweeps, {preset});
  ASSERT_EQ(fitted.size(), 1U);
  EXPECT_GT(fitted[0].contention, 1);
  EXPECT_LT(fitted[0].contention, kMaxContention);
  EXPECT_NEAR(sweeps.sweep(fitted[0]).find("fsmoe").speedup, 1.22, 1.3e-3);
  EXPECT_NEAR(sweeps.sweep(fitted[0]).find("tutel-improved").speedup,
              sweeps.sweep(preset).find("tutel-improved").speedup, 1e-12);
  EXPECT_GT(sweeps.sweep(preset).find("fsmoe").speedup, 1.3);
}

}  // namespace
}  // namespace moe::reproduce
