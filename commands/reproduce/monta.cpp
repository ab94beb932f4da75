#include "commands/reproduce/monta.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "commands/reproduce/priced.h"
#include "commands/reproduce/printed_rows.h"
#include "commands/reproduce/study.h"
#include "moe/base/check.h"
#include "moe/base/enum_array.h"
#include "moe/base/units.h"
#include "moe/search/layer_search.h"
#include "moe/shape/model_file.h"

namespace moe::reproduce {
namespace {

constexpr double kMillionBytes = 1e6;
constexpr double kTable8Bytes = 256e6;  // volume of the 8K sequence
constexpr int kTable8Tokens = 8;        // thousands of tokens

const PrintedPrimitive& find_row(const std::vector<PrintedPrimitive>& rows, std::string_view strategy,
                                 std::string_view primitive) {
  for (const PrintedPrimitive& row : rows)
    if (row.strategy == strategy && row.primitive == primitive) return row;
  bad_input("monta-table8: found no {} of {}, expected one", primitive, strategy);
}

}  // namespace

std::string_view name_of(MontaStrategy strategy) {
  static constexpr EnumArray<MontaStrategy, std::string_view, 4> kNames{"baseline", "o1", "o2", "o3"};
  return kNames[strategy];
}

double monta_seconds(MontaStrategy strategy, const MontaTimes& t, int chunks) {
  const double n = chunks;
  switch (strategy) {
    case MontaStrategy::baseline:
      return t.alltoall;
    case MontaStrategy::o1:
      return t.alltoall + t.allgather;
    case MontaStrategy::o2:
      return t.alltoall < t.allgather + t.copy ? t.alltoall + n * (t.allgather + t.copy)
                                               : n * t.alltoall + t.allgather + t.copy;
    case MontaStrategy::o3:
      break;
  }
  return t.alltoall < t.allgather ? t.alltoall + n * t.allgather + t.copy : n * t.alltoall + t.allgather + t.copy;
}

AlphaBetaLine line_through(double bytes_1, double seconds_1, double bytes_2, double seconds_2) {
  const double beta = (seconds_2 - seconds_1) / (bytes_2 - bytes_1);
  return {seconds_1 - beta * bytes_1, beta};
}

double MontaPlatform::ideal_alltoall_s(double bytes) const {
  return bytes * (experts - 1) / experts / inter_bytes_per_s;
}

double MontaPlatform::ideal_allgather_s(double bytes) const {
  return bytes * (tensor - 1) / tensor / intra_bytes_per_s;
}

MontaTimes MontaPlatform::times(MontaStrategy strategy, double bytes, int chunks) const {
  if (strategy == MontaStrategy::baseline) return {alltoall.seconds(bytes), 0, 0};
  const double chunk = bytes / chunks;
  return {alltoall.seconds(chunk / tensor), allgather.seconds(chunk), chunks > 1 ? chunk / copy_bytes_per_s : 0};
}

double MontaPlatform::seconds(MontaStrategy strategy, double bytes, int chunks) const {
  if (strategy == MontaStrategy::baseline || strategy == MontaStrategy::o1) chunks = 1;
  return monta_seconds(strategy, times(strategy, bytes, chunks), chunks);
}

MontaPlatform table8_platform() {
  const auto rows = printed_monta_table8();
  MontaPlatform p;
  const auto line = [&](const PrintedPrimitive& a, const PrintedPrimitive& b, auto ideal) {
    const double bytes_a = a.volume_m * kMillionBytes, bytes_b = b.volume_m * kMillionBytes;
    return line_through(bytes_a, ideal(bytes_a) / a.efficiency, bytes_b, ideal(bytes_b) / b.efficiency);
  };
  p.alltoall = line(find_row(rows, "o2-o3-4chunks", "alltoall"), find_row(rows, "baseline", "alltoall"),
                    [&](double bytes) { return p.ideal_alltoall_s(bytes); });
  p.allgather = line(find_row(rows, "o2-o3-4chunks", "allgather"), find_row(rows, "o1", "allgather"),
                     [&](double bytes) { return p.ideal_allgather_s(bytes); });
  const PrintedPrimitive& copy = find_row(rows, "o2-o3-4chunks", "d2d");
  p.copy_bytes_per_s = copy.volume_m * kMillionBytes / (copy.latency_ms * kMilli);
  return p;
}

double monta_bytes(int thousand_tokens) { return kTable8Bytes * thousand_tokens / kTable8Tokens; }

namespace {

constexpr std::string_view kA800 = "a800", kModel = "moe-2x70b";
constexpr int kThousand = 1024;  // the factor in sequence lengths
constexpr int kStepSeq = 8;      // thousands of tokens

LayerCase layer_of(const Profile& profile, int thousand_tokens) {
  Model model = find_model(std::string(kModel));
  model.layer.seq = int64_t{thousand_tokens} * kThousand;
  model.parallel.nodes = profile.nodes;
  model.parallel.ranks_per_node = profile.ranks_per_node;
  return complete(model.layer, model.parallel, Rounding::ragged);
}

// Returns whether a task of either phase exchanges; tasks that change a chunk's layout belong to its exchange.
bool is_exchange(TaskKind kind) {
  constexpr std::array kKinds{TaskKind::dispatch, TaskKind::allgather, TaskKind::copy,
                              TaskKind::combine,  TaskKind::gather,    TaskKind::home_copy};
  return std::ranges::find(kKinds, kind) != kKinds.end();
}

bool is_outbound(const Task& task) {
  return task.phase == Phase::forward &&
         (task.kind == TaskKind::dispatch || task.kind == TaskKind::allgather || task.kind == TaskKind::copy);
}

}  // namespace

Profile monta_cluster(const Assumptions* assumed) {
  Profile profile = find_profile(std::string(kA800));
  profile.contention = {};
  return with_assumed_rows(std::move(profile), assumed);
}

std::string_view schedule_of(MontaStrategy strategy) {
  static constexpr EnumArray<MontaStrategy, std::string_view, 4> kNames{"monta-baseline", "monta-o1", "monta-o2",
                                                                        "monta-o3"};
  return kNames[strategy];
}

MontaExperts monta_experts(const Profile& profile) {
  constexpr double kAdamBytes = 16;  // per parameter: weight, gradient, master weight, two moments
  const Model model = find_model(std::string(kModel));
  const LayerShape& l = model.layer;
  const auto parameters = static_cast<double>(model.layers * l.experts * gemms_of(l.ffn) * l.model_dim * l.hidden);
  return {kAdamBytes * parameters / (profile.nodes * profile.ranks_per_node), model.layers};
}

MontaLayer::MontaLayer(const Profile& profile, int thousand_tokens)
    : pricer_(profile, layer_of(profile, thousand_tokens)) {}

double MontaLayer::tokens() const {
  const LayerCase& c = pricer_.shape();
  return static_cast<double>(c.layer.batch * c.layer.seq * c.parallel.dp);
}

double MontaLayer::dispatch_bytes() const {
  return whole_work(TaskKind::dispatch, Phase::forward, pricer_.shape(), Flow::tensor).bytes;
}

Decision MontaLayer::decision(MontaStrategy strategy, int chunks) const {
  if (strategy == MontaStrategy::baseline || strategy == MontaStrategy::o1) chunks = 1;
  return {chunks, chunks};
}

double MontaLayer::exchange_s(MontaStrategy strategy, int chunks) const {
  return seconds_counting(is_outbound, find_schedule(schedule_of(strategy)), pricer_, decision(strategy, chunks));
}

MontaStep MontaLayer::step(MontaStrategy strategy, int chunks) const {
  const Schedule& schedule = find_schedule(schedule_of(strategy));
  const Decision d = decision(strategy, chunks);
  const auto no_gradients = [](const Task& task) { return task.kind != TaskKind::gradient; };
  const auto the_rest = [&](const Task& task) { return no_gradients(task) && !is_exchange(task.kind); };
  MontaStep step;
  step.seconds = seconds_counting(no_gradients, schedule, pricer_, d);
  step.exchange_s = step.seconds - seconds_counting(the_rest, schedule, pricer_, d);
  for (const Work& work : build_plan(schedule, pricer_.shape(), d).works) step.flops += work.flops;
  return step;
}

Decision MontaLayer::choice() const {
  LayerSearch search;
  return search.tune(find_schedule("monta"), pricer_).decision;
}

MontaPriority monta_priority(const Profile& profile) {
  LayerCase shape = layer_of(profile, kStepSeq);
  std::swap(shape.parallel.cp, shape.parallel.dp);
  shape = complete(shape.layer, shape.parallel, Rounding::ragged);
  const LayerPricer pricer(profile, shape);
  LayerSearch search;
  const auto seconds = [&](std::string_view schedule) {
    const LayerResult result = search.tune(find_schedule(schedule), pricer);
    return result.forward_s + result.backward_s;
  };
  return {shape, seconds("lina-baseline"), seconds("lina-priority")};
}

MontaStrategy min_exchange_strategy(const MontaLayer& layer, int chunks) {
  return *std::ranges::min_element(kMontaStrategies, {}, [&](MontaStrategy s) { return layer.exchange_s(s, chunks); });
}

// MoNTA's Table 8 and Figure 13, by its own closed forms.

namespace {

constexpr int kTable8Seq = 8, kStep3Seq = 256;  // thousands of tokens

// The latencies of Table 8 as printed.
struct Table8 {
  double baseline = 0;
  std::map<MontaStrategy, MontaTimes> times;
  std::map<MontaStrategy, double> efficiency;  // r1 of the strategy's AlltoAll
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

// Returns whether one of the lines goes through the point (table8_platform).
bool is_on_line(const PrintedEfficiency& row) {
  const double least = row.primitive == "alltoall" ? 8 : 64;
  return row.volume_m == least || row.volume_m == 256;
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
  const auto titled = [](std::string caption) {
    return Comparison{.caption = std::move(caption),
                      .label_names = {"primitive", "million bytes"},
                      .quantity = {"efficiency", "of the bandwidth", 1, 3}};
  };
  Comparison through = titled("the points that the lines go through"), others = titled("the other points");
  for (const PrintedEfficiency& row : printed_monta_fig13()) {
    const double bytes = row.volume_m > 0 ? row.volume_m * 1e6 : monta_bytes(kStep3Seq);
    const bool chosen = is_on_line(row);
    (chosen ? through : others)
        .figures.push_back({{row.primitive, fmt::format("{:.0f}", bytes / 1e6)},
                            chosen ? "by construction" : "",
                            row.efficiency,
                            efficiency_of(p, row.primitive, bytes)});
  }
  report.comparisons = {through, others};
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

// MoNTA's Figures 14, 16 and 17: its choice by sequence length and the step of its model, by the plans that run.

namespace {

constexpr int kLongSeq = 256;  // thousands of tokens
constexpr std::array kSteps{MontaStrategy::baseline, MontaStrategy::o1, MontaStrategy::o2, MontaStrategy::o3};

double ratio(const MontaLayer& layer, MontaStrategy s) {
  return layer.exchange_s(s, kMontaChunks) / layer.exchange_s(MontaStrategy::baseline, 1);
}

// Compares Figure 14's two printed times; the other times are for plots.
std::vector<Comparison> time_comparisons(const Profile& profile) {
  Comparison printed{.caption = "time over the baseline's", .label_names = {"strategy", "tokens"}};
  Comparison others{.caption = "time over the baseline's, not printed", .label_names = printed.label_names};
  printed.quantity = others.quantity = kShare;
  others.comparison_table = false;
  for (const PrintedChoice& row : printed_monta_choices()) {
    const MontaLayer layer(profile, row.seq);
    for (const MontaStrategy s : kMontaStrategies) {
      const bool o1 = s == MontaStrategy::o1 && row.seq == kStepSeq;
      const bool o3 = s == MontaStrategy::o3 && row.seq == kLongSeq;
      const Figure figure{{std::string(name_of(s)), fmt::format("{}K", row.seq)}, "", std::nullopt, ratio(layer, s)};
      Comparison& c = o1 || o3 ? printed : others;
      c.figures.push_back(figure);
      if (o1 || o3) c.figures.back().paper = printed_monta_ratio(o1 ? "fig14-o1" : "fig14-o3", row.seq);
    }
  }
  return {printed, others};
}

std::string text_of(const Decision& choice) {
  const std::string name(choice.variant->name.substr(std::string_view("monta-").size()));
  return choice.degree_forward == 1 ? name : fmt::format("{}, {} chunks", name, choice.degree_forward);
}

TextTable choice_table(const Profile& profile, bool searched) {
  TextTable table{"time over the baseline's and the least of them, by sequence; O2 and O3 with 4 chunks",
                  {"tokens", "o1", "o2", "o3", "least", "chosen in the paper"},
                  {}};
  if (searched) table.header.emplace_back("monta chooses, chunks searched (stalls fitted)");
  for (const PrintedChoice& row : printed_monta_choices()) {
    const MontaLayer layer(profile, row.seq);
    auto& cells = table.rows.emplace_back(std::vector{fmt::format("{}K", row.seq)});
    for (const MontaStrategy s : kMontaStrategies) cells.push_back(fmt::format("{:.3f}", ratio(layer, s)));
    cells.emplace_back(name_of(min_exchange_strategy(layer, kMontaChunks)));
    cells.push_back(row.choice);
    if (searched) cells.push_back(text_of(layer.choice()));
  }
  return table;
}

// Returns the stall in seconds at which `slower` takes as long as `faster` for a sequence, both with 4 chunks.
double break_even_stall_s(Profile profile, Resource by, int seq, std::array<MontaStrategy, 2> slower_faster) {
  double low = 0, high = 1e-1;
  for (int halving = 0; halving < 40; ++halving) {
    const double middle = (low + high) / 2;
    profile.contention.stall_s[Resource::intra][by] = middle;
    const MontaLayer layer(profile, seq);
    const bool slower =
        layer.exchange_s(slower_faster[0], kMontaChunks) > layer.exchange_s(slower_faster[1], kMontaChunks);
    (slower ? high : low) = middle;
  }
  return (low + high) / 2;
}

std::string stall_finding(const Profile& profile, bool assumed) {
  constexpr std::array kO2O1{MontaStrategy::o2, MontaStrategy::o1}, kO3O2{MontaStrategy::o3, MontaStrategy::o2};
  const auto us = [&](Resource by, int seq, auto pair) { return 1e6 * break_even_stall_s(profile, by, seq, pair); };
  std::string text = fmt::format(
      "For O1 to be best up to 16K and O2 from 32K on, an AllGather must lose {:.0f} to {:.0f} us each time it starts "
      "to run beside an AlltoAll",
      us(Resource::inter, 16, kO2O1), us(Resource::inter, 32, kO2O1));
  if (assumed)
    text += fmt::format(
        "; on top of what is assumed of those, O2 up to 128K and O3 at 256K need {:.0f} to {:.0f} us "
        "beside a copy",
        us(Resource::copy, 128, kO3O2), us(Resource::copy, 256, kO3O2));
  return text +
         ". The paper names the causes (fixed latency, misaligned dispatch; AllGather and copy kernels that "
         "stall each other where there is little data) and prints neither figure. Rates alone (r2 and r3 of one value "
         "each) cannot shift O3's lead between lengths, because copy and AllGather grow alike.";
}

std::string priority_finding(const Profile& profile) {
  const MontaPriority p = monta_priority(profile);
  return fmt::format(
      "EP > PP > CP > DP (Communication Conflict) is a priority on the link between nodes. Exchanges of EP and CP in "
      "one micro-batch wait for each other's results, so which of the two goes first decides nothing; gradients can "
      "meet both. With CP {} beside EP {}, one layer of {}K takes {:.2f} ms if gradients share the link with either "
      "(lina-baseline), and {:.2f} ms, {:.1f} % less, if they start only while neither waits or runs (lina-priority).",
      p.shape.parallel.cp, p.shape.parallel.ep, kStepSeq, p.shared_s * 1e3, p.behind_s * 1e3,
      100 * (1 - p.behind_s / p.shared_s));
}

// Compares Figures 16 and 17 with each other, by their printed numbers alone.
Comparison printed_step() {
  Comparison c{.caption = "the training step, 8K: from the AlltoAll's printed shares (0.22 before, 0.10 after)",
               .label_names = {"what"}};
  c.quantity = kShare;
  const double before = printed_monta_ratio("alltoall-share-baseline", kStepSeq);
  const double after = printed_monta_ratio("alltoall-share-monta", kStepSeq);
  // after = x before / (1 - before + x before), where x is the AlltoAll's new time over its old one.
  const double ratio = after * (1 - before) / (before * (1 - after));
  c.figures.push_back({{"AlltoAll over the baseline's"}, "", printed_monta_ratio("fig14-o1", kStepSeq), ratio});
  c.figures.push_back({{"step saved"}, "", printed_monta_ratio("step-reduction", kStepSeq), before * (1 - ratio)});
  return c;
}

// Compares Figures 16 and 17 with the plans.
std::vector<Comparison> planned_steps(const Profile& profile, const Assumptions& assumed) {
  const auto peak = assumed.value("peak_flops");
  require<BadInput>(peak && *peak > 0, "{}: value: found no peak_flops above 0, expected one", assumed.file);
  const MontaLayer layer(profile, kStepSeq);
  Comparison given{.caption = "AlltoAll's share of the baseline's step, 8K (Figure 16), which sets GEMM's rate",
                   .label_names = {"strategy"}};
  Comparison share{.caption = "AlltoAll's share of a step, 8K (Figure 16)", .label_names = {"strategy"}};
  Comparison saved{.caption = "step saved, 8K (Figure 17)", .label_names = {"strategy"}};
  Comparison mfu{.caption = "model FLOPs utilisation, 8K", .label_names = {"strategy"}};
  Comparison throughput{.caption = "throughput of 16 GPUs, 8K, were all 80 layers alike", .label_names = {"strategy"}};
  given.quantity = share.quantity = saved.quantity = mfu.quantity = kShare;
  throughput.quantity = {"tokens_per_s", "tokens/s", 1, 0};
  const MontaExperts experts = monta_experts(profile);
  const double baseline_s = layer.step(MontaStrategy::baseline, 1).seconds;
  for (const MontaStrategy s : kSteps) {
    const MontaStep step = layer.step(s, kMontaChunks);
    const std::vector<std::string> labels{std::string(name_of(s))};
    const bool baseline = s == MontaStrategy::baseline, good = s == MontaStrategy::o1 || s == MontaStrategy::o2;
    std::optional<double> printed_share, printed_saved;
    if (baseline || good)
      printed_share = printed_monta_ratio(baseline ? "alltoall-share-baseline" : "alltoall-share-monta", kStepSeq);
    if (good) printed_saved = printed_monta_ratio("step-reduction", kStepSeq);
    (baseline ? given : share)
        .figures.push_back({labels, baseline ? "by construction" : "", printed_share, step.share()});
    if (!baseline) saved.figures.push_back({labels, "", printed_saved, 1 - step.seconds / baseline_s});
    mfu.figures.push_back({labels, "", std::nullopt, step.flops / step.seconds / *peak});
    throughput.figures.push_back({labels, "", std::nullopt, layer.tokens() / (step.seconds * experts.layers)});
  }
  return {given, share, saved, mfu, throughput};
}

void add_steps(Report& report, const Profile& profile, const Assumptions* assumed) {
  if (assumed == nullptr) {
    report.comparisons.push_back(printed_step());
    report.shows.emplace_back(
        "The AlltoAll's share of a step before and after gives the step's saving of 13 % back; it implies an AlltoAll "
        "of 0.39 of the baseline's, which is O1's 0.355 of Table 8 rather than Figure 14's 0.30.");
    report.not_computable.emplace_back("the step itself and its MFU: GEMM, ReduceScatter and AllReduce of the cluster");
    return;
  }
  const auto steps = planned_steps(profile, *assumed);
  report.comparisons.insert(report.comparisons.end(), steps.begin(), steps.end());
  report.shows.emplace_back(
      "The baseline's share is an input (it sets GEMM's rate); the others are results. O1 saves more than printed "
      "because "
      "it reduces the expert's partial sums by a ReduceScatter here, where the baseline has an AllReduce. The paper "
      "calls O2 comparable to O1 in the step, which holds at the lower end of the first stall's range. The assumed "
      "value also gives the printed choice when the number of chunks is searched.");
  const MontaExperts experts = monta_experts(profile);
  report.shows.push_back(
      fmt::format("MoNTA outputs an MFU and a throughput, but the paper prints neither. 2x70B with {} layers does not "
                  "fit GPUs of {:.0f} "
                  "GB (Table 3's 16 P2 / (p t e) bytes: {:.0f} GB of experts alone), so the trained model had fewer "
                  "layers or kept state elsewhere, and the paper does not say which. Here one layer stands for all.",
                  experts.layers, profile.memory_bytes.value_or(0) / 1e9, experts.bytes / 1e9));
  report.shows.push_back(priority_finding(profile));
}

}  // namespace

Report monta_fig14(Study& study) {
  Report report{.key = "monta-fig14",
                .title = "the choice among O1, O2 and O3 by sequence length, and the training step",
                .source = "MoNTA (2024), Figures 14, 16 and 17, as stated in the text beside them."};
  const bool assumed = study.assumed != nullptr;
  const Profile profile = monta_cluster(study.assumed);
  report.comparisons = time_comparisons(profile);
  report.tables = {choice_table(profile, assumed)};
  report.shows = {stall_finding(profile, assumed),
                  "The least time that equation 13 leaves O3, as a share of the baseline's, is 7/32 = 0.219 (printed "
                  "0.21): that of the AllGather alone, where both networks are used equally well."};
  if (!assumed)
    report.shows.emplace_back(
        "Without slowdowns O3 is never the slower one, as in the paper's own model. The paper measured that others are "
        "faster up to 128K, and chose them.");
  report.not_computable = {"what the priority EP > PP > CP > DP gains: the paper prints no measurement of it"};
  add_steps(report, profile, study.assumed);
  report.conventions = {
      "Plans of monta-baseline, monta-o1 to -o3 and monta for a layer of configs/models/moe-2x70b on "
      "configs/clusters/a800, replayed; an exchange is a dispatch until the expert could begin, with Table 8's lines "
      "(monta-fig13) and copy. Its volume has the k that equation 3 leaves out: 8K are 2 x 8192 x 8192 x 2 bytes, 256 "
      "MiB, where Table 8 counts 256 million.",
      "A step: forward and backward of one layer; gradients, embedding and optimizer left out.",
      "Choices: 'less than 16K' is read as up to 16K."};
  return report;
}

}  // namespace moe::reproduce
