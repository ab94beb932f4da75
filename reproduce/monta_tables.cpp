// MoNTA's Table 8 and Figure 13, by its own closed forms.
#include <algorithm>
#include <array>
#include <map>

#include "moe/base/check.h"
#include "moe/base/units.h"
#include "reproduce/monta_model.h"
#include "reproduce/printed_rows.h"
#include "reproduce/study.h"

namespace moe::reproduce {
namespace {

constexpr int kTable8Seq = 8, kStep3Seq = 256;  // thousands of tokens

// Holds Table 8's latencies as it prints them.
struct Table8 {
  double baseline = 0;
  std::map<MontaStrategy, MontaTimes> times;
  std::map<MontaStrategy, double> efficiency;  // r1 that the strategy's AlltoAll has
};

Table8 printed_times() {
  Table8 t;
  MontaTimes chunk;
  double chunk_efficiency = 0;
  for (const PrintedPrimitive& row : printed_monta_table8()) {
    const double seconds = row.latency_ms * kMilli;
    MontaTimes& times = row.strategy == "o1" ? t.times[MontaStrategy::o1] : chunk;
    if (row.strategy == "baseline")
      t.baseline = seconds;
    else if (row.primitive == "alltoall") {
      times.alltoall = seconds;
      (row.strategy == "o1" ? t.efficiency[MontaStrategy::o1] : chunk_efficiency) = row.efficiency;
    } else
      (row.primitive == "allgather" ? times.allgather : times.copy) = seconds;
  }
  for (const MontaStrategy s : {MontaStrategy::o2, MontaStrategy::o3}) {
    t.times[s] = chunk;
    t.efficiency[s] = chunk_efficiency;
  }
  return t;
}

double strategy_seconds(const Table8& t, MontaStrategy s) {
  return monta_seconds(s, t.times.at(s), s == MontaStrategy::o1 ? 1 : kMontaChunks);
}

std::string printed_equation(MontaStrategy s) {
  return s == MontaStrategy::o1 ? "eq14-o1" : s == MontaStrategy::o2 ? "eq15-o2" : "eq16-o3";
}

Comparison latencies() {
  Comparison c{.caption = "latency of each primitive, from its volume and efficiency",
               .label_names = {"strategy", "primitive"}};
  c.quantity = kMilliseconds;
  c.quantity.digits = 3;
  const MontaPlatform p = table8_platform();
  for (const PrintedPrimitive& row : printed_monta_table8()) {
    const double bytes = row.volume_m * 1e6;
    std::optional<double> ours;
    if (row.primitive == "alltoall") ours = p.ideal_alltoall_s(bytes) / row.efficiency;
    if (row.primitive == "allgather") ours = p.ideal_allgather_s(bytes) / row.efficiency;
    c.figures.push_back({{row.strategy, row.primitive}, "", row.latency_ms * kMilli, ours});
  }
  return c;
}

Comparison ratios(const Table8& t) {
  Comparison c{.caption = "time over the baseline's, 8K", .label_names = {"strategy"}};
  c.quantity = kShare;
  const MontaPlatform p = table8_platform();
  for (const MontaStrategy s : kMontaStrategies) {
    const double seconds = strategy_seconds(t, s), printed = printed_monta_ratio(printed_equation(s), kTable8Seq);
    const std::string name(name_of(s));
    c.figures.push_back({{name}, "own baseline", printed, seconds / t.baseline});
    const double mixed = p.ideal_alltoall_s(monta_bytes(kTable8Seq)) / t.efficiency.at(s);
    c.figures.push_back({{name}, "baseline at its r1", printed, seconds / mixed});
  }
  return c;
}

double efficiency_of(const MontaPlatform& p, std::string_view primitive, double bytes) {
  return primitive == "alltoall" ? p.ideal_alltoall_s(bytes) / p.alltoall.seconds(bytes)
                                 : p.ideal_allgather_s(bytes) / p.allgather.seconds(bytes);
}

}  // namespace

Report monta_table8(Study&) {
  Report report{.key = "monta-table8",
                .title = "AlltoAll of an 8K sequence as O1, O2 and O3",
                .source = "MoNTA (2024), Table 8 and equations 11 to 16: 16 A800 in 2 nodes, TP 8, EP 2."};
  const Table8 t = printed_times();
  report.comparisons = {latencies(), ratios(t)};
  const double o1 = strategy_seconds(t, MontaStrategy::o1), o2 = strategy_seconds(t, MontaStrategy::o2);
  const double o3 = strategy_seconds(t, MontaStrategy::o3);
  report.shows = {
      "The latencies follow from volume and efficiency with M = 10^6 bytes, 25 GB/s between nodes and 200 GB/s inside.",
      "The printed ratios divide by different baselines: each by an AlltoAll of the whole volume at the efficiency r1 "
      "of the strategy's own, smaller AlltoAll (0.632 for O1, 0.427 for O2 and O3), not at the baseline's 0.741. On "
      "the printed baseline, 6.909 ms, they are those of the first column.",
      fmt::format(
          "By the paper's own model, O3 is the fastest at 8K ({:.2f} ms; O2 {:.2f}, O1 {:.2f}), where it measured "
          "O2 and O3 worse than O1 and chose O1: see monta-fig14.",
          o3 * 1e3, o2 * 1e3, o1 * 1e3)};
  report.not_computable = {
      "the copy's latency from its volume and efficiency: B3, the theoretical bandwidth of a copy"};
  report.conventions = {
      "t = 8, e = 2; O1 in one piece, O2 and O3 in 4 chunks; AlltoAll I / (N t) (e - 1) / e / (B1 r1), AllGather I / N "
      "(t - 1) / t / (B2 r2), copy as printed.",
      "One AlltoAll, without the experts and the way back."};
  return report;
}

Report monta_fig13(Study&) {
  Report report{.key = "monta-fig13",
                .title = "efficiency of AlltoAll and AllGather by volume",
                .source = "MoNTA (2024), Figure 13, as far as Table 8 and the text print its curves."};
  const MontaPlatform p = table8_platform();
  Comparison& c = report.comparisons.emplace_back();
  c.label_names = {"primitive", "million bytes"};
  c.quantity = {"efficiency", "of the bandwidth", 1, 3};
  for (const PrintedEfficiency& row : printed_monta_fig13()) {
    const double bytes = row.volume_m > 0 ? row.volume_m * 1e6 : monta_bytes(kStep3Seq);
    c.figures.push_back({{row.primitive, fmt::format("{:.0f}", bytes / 1e6)},
                         "",
                         row.efficiency,
                         efficiency_of(p, row.primitive, bytes)});
  }
  report.shows = {fmt::format(
      "Both curves are straight lines in time: AlltoAll {:.0f} us + {:.2f} ps a byte, AllGather {:.0f} us + "
      "{:.2f} ps a byte, through two printed points each. They give the other points, which lie up to 32 "
      "times outside, within a few percent.",
      p.alltoall.alpha_s * 1e6, p.alltoall.beta_s_per_byte * 1e12, p.allgather.alpha_s * 1e6,
      p.allgather.beta_s_per_byte * 1e12)};
  report.not_computable = {"the curves themselves: no other points of them are printed"};
  report.conventions = {
      "Efficiency: ideal time over time; ideal: I (e - 1) / e / 25 GB/s, I (t - 1) / t / 200 GB/s.",
      "The lines go through Table 8's AlltoAlls of 8 and 256 and AllGathers of 64 and 256 million bytes, so these "
      "agree by construction. 8192 million bytes is the 256K sequence for which the text reads 0.741 and 0.803 off "
      "the figure; it does not say at which volume."};
  return report;
}

}  // namespace moe::reproduce
