// MoNTA's closed forms against a pipeline that is stepped through chunk by chunk, and the plans of the same strategies
// against both.
#include "commands/reproduce/monta.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <tuple>

#include "commands/reproduce/priced.h"
#include "commands/reproduce/printed_rows.h"
#include "commands/reproduce/study.h"
#include "moe/base/check.h"

namespace moe::reproduce {
namespace {

// Three machines in a row, one job a chunk: AlltoAll, AllGather, copy; O2 runs AllGather and copy on one machine.
double stepped(MontaStrategy s, const MontaTimes& t, int chunks) {
  double alltoall_free = 0, gather_free = 0, copy_free = 0;
  for (int c = 0; c < chunks; ++c) {
    alltoall_free += t.alltoall;
    gather_free = std::max(gather_free, alltoall_free) + t.allgather;
    if (s == MontaStrategy::o2)
      copy_free = gather_free += t.copy;
    else
      copy_free = std::max(copy_free, gather_free) + t.copy;
  }
  return copy_free;
}

TEST(Monta, ClosedFormsAreThePipelines) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> seconds(0.1, 2);
  for (int i = 0; i < 2000; ++i) {
    MontaTimes t{seconds(generator), seconds(generator), 0};
    const int chunks = 1 + static_cast<int>(generator() % 8);
    // O3's form holds where a copy is no longer than what it runs beside.
    t.copy = std::min(t.alltoall, t.allgather) * std::uniform_real_distribution<double>(0, 1)(generator);
    for (const MontaStrategy s : {MontaStrategy::o2, MontaStrategy::o3})
      EXPECT_NEAR(monta_seconds(s, t, chunks), stepped(s, t, chunks), 1e-9) << name_of(s) << " " << chunks;
    EXPECT_EQ(monta_seconds(MontaStrategy::o1, t, 1), t.alltoall + t.allgather);
  }
}

// The ratios on Table 8's own baseline: 0.355, 0.306, 0.284 by hand from its latencies.
TEST(Monta, RatiosOnItsOwnBaseline) {
  EXPECT_NEAR((1.012 + 1.443) / 6.909, 0.355, 5e-4);
  EXPECT_NEAR(monta_seconds(MontaStrategy::o2, {0.374, 0.385, 0.05}, 4) / 6.909, 0.306, 5e-4);
  EXPECT_NEAR(monta_seconds(MontaStrategy::o3, {0.374, 0.385, 0.05}, 4) / 6.909, 0.284, 5e-4);
}

TEST(Monta, LinesGoThroughTable8) {
  const MontaPlatform p = table8_platform();
  EXPECT_NEAR(p.alltoall.seconds(256e6), 6.909e-3, 2e-6);
  EXPECT_NEAR(p.alltoall.seconds(8e6), 0.374e-3, 1e-6);
  EXPECT_NEAR(p.allgather.seconds(256e6), 1.443e-3, 1e-6);
  EXPECT_NEAR(p.allgather.seconds(64e6), 0.385e-3, 1e-6);
  EXPECT_NEAR(p.seconds(MontaStrategy::o2, 256e6, 4), 2.114e-3, 5e-6);
  EXPECT_NEAR(monta_bytes(256), 32 * 256e6, 1);
}

std::vector<int> lengths() {
  std::vector<int> all;
  for (const PrintedChoice& row : printed_monta_choices()) all.push_back(row.seq);
  return all;
}

// The preset's lines are Table 8's, and its other rows those that are listed as assumed.
TEST(Monta, PresetIsWhatIsPrintedAndWhatIsAssumed) {
  const MontaPlatform p = table8_platform();
  const Profile preset = find_profile("a800");
  const auto expect_line = [&](Op op, Network network, const AlphaBetaLine& line) {
    for (const CommRow& row : preset.comm)
      if (row.op == op && row.network == network) {
        EXPECT_NEAR(row.alpha_s / line.alpha_s, 1, 1e-9) << name_of(op);
        EXPECT_NEAR(row.beta_s_per_byte / line.beta_s_per_byte, 1, 1e-9) << name_of(op);
        return;
      }
    ADD_FAILURE() << name_of(op);
  };
  expect_line(Op::alltoall, Network::inter, p.alltoall);
  expect_line(Op::allgather, Network::intra, p.allgather);
  EXPECT_NEAR(preset.compute.front().beta_s_per_byte * p.copy_bytes_per_s, 1, 1e-12);
  const Assumptions assumed = find_assumptions("monta-a800");
  EXPECT_EQ(monta_cluster(&assumed).contention, preset.contention);
  EXPECT_FALSE(preset.contention.none());
  EXPECT_TRUE(monta_cluster(nullptr).contention.none());
  std::set<std::tuple<Op, double, double>> rows, expected;
  for (const CommRow& row : preset.comm) rows.insert({row.op, row.alpha_s, row.beta_s_per_byte});
  for (const ComputeRow& row : preset.compute) rows.insert({row.op, row.alpha_s, row.beta_s_per_flop});
  for (const AssumedRow& row : assumed.rows) {
    const auto* comm = std::get_if<CommRow>(&row.row);
    const auto* compute = std::get_if<ComputeRow>(&row.row);
    if (comm != nullptr) expected.insert({comm->op, comm->alpha_s, comm->beta_s_per_byte});
    if (compute != nullptr) expected.insert({compute->op, compute->alpha_s, compute->beta_s_per_flop});
  }
  EXPECT_TRUE(std::ranges::includes(rows, expected));
  EXPECT_EQ(preset.comm.size() + preset.compute.size(), 3 + assumed.rows.size());
}

TEST(Monta, PlansAreTheClosedFormsWhereNothingStalls) {
  const MontaPlatform p = table8_platform();
  const Profile profile = monta_cluster(nullptr);
  for (const int seq : lengths()) {
    const MontaLayer layer(profile, seq);
    EXPECT_EQ(layer.dispatch_bytes(), 2.0 * 1024 * seq * 8192 * 2);
    for (const MontaStrategy s : {MontaStrategy::baseline, MontaStrategy::o1, MontaStrategy::o2, MontaStrategy::o3})
      for (const int chunks : {1, 2, 4, 8})
        EXPECT_NEAR(layer.exchange_s(s, chunks) / p.seconds(s, layer.dispatch_bytes(), chunks), 1, 1e-9)
            << name_of(s) << " " << seq << "K, " << chunks;
    const double o3 = layer.exchange_s(MontaStrategy::o3, kMontaChunks);
    for (const MontaStrategy s : kMontaStrategies)
      EXPECT_LE(o3, layer.exchange_s(s, kMontaChunks) * (1 + 1e-12)) << name_of(s) << " " << seq << "K";
  }
}

// Three machines, one job a chunk each (O2's copies run on the AllGathers'), stepped from event to event: where an
// AllGather and a job of another machine begin to run side by side, the AllGather gets longer.
double stalled(MontaStrategy s, const MontaTimes& t, int chunks, const std::array<double, 3>& stall_s) {
  struct Job {
    int kind, chunk;  // AlltoAll 0, AllGather 1, copy 2
    double end = 0;
  };
  std::array<std::vector<Job>, 3> queues;
  for (int c = 0; c < chunks; ++c) {
    queues[0].push_back({0, c});
    queues[1].push_back({1, c});
    if (chunks > 1) queues[s == MontaStrategy::o2 ? 1 : 2].push_back({2, c});
  }
  std::array<size_t, 3> next{};
  std::array<Job*, 3> running{};
  std::array<int, 3> done{};  // by kind: chunks, which end in order
  double now = 0;
  for (;;) {
    for (size_t m = 0; m < 3; ++m) {
      if (running[m] || next[m] == queues[m].size()) continue;
      Job& job = queues[m][next[m]];
      if (job.kind > 0 && done[job.kind - 1] <= job.chunk) continue;
      job.end = now + std::array{t.alltoall, t.allgather, t.copy}[job.kind];
      for (Job* other : running) {
        if (!other || other->end - now < 1e-12) continue;
        if (job.kind == 1) job.end += stall_s[other->kind];
        if (other->kind == 1) other->end += stall_s[job.kind];
      }
      running[m] = &job;
      ++next[m];
    }
    double first = 1e300;
    for (const Job* job : running)
      if (job) first = std::min(first, job->end);
    if (first == 1e300) return now;
    now = first;
    for (Job*& job : running)
      if (job && job->end == now) {
        ++done[job->kind];
        job = nullptr;
      }
  }
}

TEST(Monta, StalledPlansAreTheSteppedPipelines) {
  const MontaPlatform p = table8_platform();
  const Assumptions assumed = find_assumptions("monta-a800");
  const Profile profile = monta_cluster(&assumed);
  const std::array<double, 3> stall_s{assumed.value("intra_by_inter_stall_s").value(), 0,
                                      assumed.value("intra_by_copy_stall_s").value()};
  int slower = 0;
  for (const int seq : lengths()) {
    const MontaLayer layer(profile, seq);
    for (const MontaStrategy s : kMontaStrategies)
      for (const int chunks : {1, 2, 4, 8}) {  // that divide the rows
        const double free = p.seconds(s, layer.dispatch_bytes(), chunks), found = layer.exchange_s(s, chunks);
        const int n = s == MontaStrategy::o1 ? 1 : chunks;
        EXPECT_NEAR(found / stalled(s, p.times(s, layer.dispatch_bytes(), n), n, stall_s), 1, 1e-9)
            << name_of(s) << " " << seq << "K, " << chunks;
        slower += found > free * 1.01;
      }
  }
  EXPECT_GT(slower, 30);
}

// Figure 14's choices, with its 4 chunks and with the number of chunks searched.
TEST(Monta, ChoosesAsPrintedWhereKernelsStall) {
  const Assumptions assumed = find_assumptions("monta-a800");
  const Profile profile = monta_cluster(&assumed);
  for (const PrintedChoice& row : printed_monta_choices()) {
    const MontaLayer layer(profile, row.seq);
    EXPECT_EQ(name_of(min_exchange_strategy(layer, kMontaChunks)), row.choice) << row.seq;
    EXPECT_EQ(layer.choice().variant->name, "monta-" + row.choice) << row.seq;
  }
}

// By hand: what a rank of 16 computes and moves in a layer of 2x70B with 8K tokens.
TEST(Monta, StepIsTheSumOfItsParts) {
  const MontaPlatform p = table8_platform();
  const Assumptions assumed = find_assumptions("monta-a800");
  const Profile profile = monta_cluster(&assumed);
  const double tokens = 8192, m = 8192, h = 28672, kv = 1024;
  const double attention = 2 * tokens * (2 * m * m + 2 * m * kv) + 4 * tokens * tokens * m;
  const double experts = 2 * 3 * 2 * tokens * m * h, gate = 8 * 2 * tokens * m * 2;  // the gate on each of 8 TP ranks
  const double flops = 3 * (attention + experts + gate) / 8;
  const double volume = 2 * tokens * m * 2;
  const auto reduced = [&](double bytes) { return 2 * p.allgather.seconds(bytes); };
  const double rest = flops * profile.compute.back().beta_s_per_flop + 2 * reduced(volume / 2);
  const double baseline = rest + 4 * p.alltoall.seconds(volume) + 2 * reduced(volume);
  const double o1 = rest + 4 * p.seconds(MontaStrategy::o1, volume, 1) + 2 * p.allgather.seconds(volume);
  const MontaLayer layer(profile, 8);
  const MontaStep before = layer.step(MontaStrategy::baseline, 1), after = layer.step(MontaStrategy::o1, 1);
  EXPECT_NEAR(before.seconds / baseline, 1, 1e-9);
  EXPECT_NEAR(after.seconds / o1, 1, 1e-9);
  EXPECT_NEAR(before.flops / flops, 1, 1e-9);
  EXPECT_NEAR(before.share(), 4 * p.alltoall.seconds(volume) / baseline, 1e-9);
  EXPECT_NEAR(before.share(), printed_monta_ratio("alltoall-share-baseline", 8), 5e-4) << "what sets GEMM's rate";
  EXPECT_GT(layer.step(MontaStrategy::o3, kMontaChunks).seconds, after.seconds);
}

// Tokens a second by hand: two TP groups' sequences over 80 layers; and by the FLOPs of a step at the MFU's rate.
TEST(Monta, ThroughputIsTheStepsTokens) {
  const Assumptions assumed = find_assumptions("monta-a800");
  Study study;
  study.assumed = &assumed;
  const Report report = monta_fig14(study);
  const auto find = [&](std::string_view caption) -> const Comparison& {
    return *std::ranges::find_if(report.comparisons,
                                 [&](const Comparison& c) { return c.caption.starts_with(caption); });
  };
  const Comparison &throughput = find("throughput"), &mfu = find("model FLOPs");
  ASSERT_EQ(throughput.figures.size(), 4U);
  const Profile profile = monta_cluster(&assumed);
  const MontaLayer layer(profile, 8);
  EXPECT_EQ(layer.tokens(), 2 * 8192);
  const double flops = layer.step(MontaStrategy::baseline, 1).flops * 16 * 80 / (2 * 8192);  // of a token, all GPUs
  for (size_t i = 0; i < throughput.figures.size(); ++i)
    EXPECT_NEAR(*throughput.figures[i].ours * flops / (16 * 312e12), *mfu.figures[i].ours, 1e-9);
}

// The layer of the priority EP > CP > DP: every exchange of CP waits for every one of EP, or the other way round; and
// gradients behind both take what the layer takes without them, or longer by no more than they take alone.
TEST(Monta, PriorityIsThatOfGradients) {
  const Assumptions assumed = find_assumptions("monta-a800");
  const Profile profile = monta_cluster(&assumed);
  const MontaPriority found = monta_priority(profile);
  EXPECT_EQ(found.shape.parallel.cp * found.shape.parallel.mp, 16);
  const LayerPricer pricer(profile, found.shape);
  const Plan plan = build_plan(find_schedule("lina-baseline"), found.shape, Decision{});
  const std::vector<double> seconds = price(pricer, plan);
  std::vector<std::set<int>> before;  // by task: all that it waits for
  double gradients_s = 0;
  int pairs = 0;
  std::vector<int> exchanges[2];
  for (const Task& task : plan.tasks()) {
    std::set<int>& all = before.emplace_back(task.after.begin(), task.after.end());
    for (const int id : task.after) all.insert(before[id].begin(), before[id].end());
    if (task.kind == TaskKind::gradient) gradients_s += seconds[task.id];
    if (task.group == GroupKind::ep) exchanges[0].push_back(task.id);
    if (task.group == GroupKind::cp) exchanges[1].push_back(task.id);
  }
  for (const int ep : exchanges[0])
    for (const int cp : exchanges[1]) {
      EXPECT_TRUE(before[ep].contains(cp) || before[cp].contains(ep));
      ++pairs;
    }
  EXPECT_GE(pairs, 8);
  const double without_s = seconds_counting([](const Task& task) { return task.kind != TaskKind::gradient; },
                                            find_schedule("lina-baseline"), pricer, Decision{});
  EXPECT_GT(gradients_s, 0);
  EXPECT_GE(found.behind_s, without_s * (1 - 1e-9));
  EXPECT_LE(found.behind_s, (without_s + gradients_s) * (1 + 1e-9));
  EXPECT_LT(found.behind_s, found.shared_s);
}

// Numbers that others were fitted to, and no others, are in tables that say so.
TEST(Monta, WhatAgreesByConstructionSaysSo) {
  const Assumptions assumed = find_assumptions("monta-a800");
  Study study, assuming;
  assuming.assumed = &assumed;
  int labelled = 0;
  for (const Report& report : {monta_table8(study), monta_fig13(study), monta_fig14(study), monta_fig14(assuming)})
    for (const Comparison& c : report.comparisons)
      for (const Figure& f : c.figures) {
        if (!f.paper || !f.ours) continue;
        if (f.convention == "by construction") {
          ++labelled;
          EXPECT_NEAR(*f.ours / *f.paper, 1, 5e-3) << report.key << ' ' << c.caption;
        } else if (report.key == "monta-fig13") {
          EXPECT_GT(std::abs(*f.ours / *f.paper - 1), 1e-3) << c.caption << ' ' << f.labels[1];
        }
      }
  EXPECT_EQ(labelled, 4 + 1);
}

// Tables 3 and 4 with numbers: 2x70B on 16 GPUs, t = 8, e = 2, d = 2.
TEST(Monta, MemoryIsTables3And4) {
  Study study;
  const Report report = monta_memory(study);
  ASSERT_EQ(report.comparisons.size(), 3U);
  const double attention = 2.0 * 8192 * 8192 + 2.0 * 8192 * 1024, p1 = 80 * attention + 2.0 * 128256 * 8192;
  const double p2 = 80.0 * 2 * 3 * 8192 * 28672;
  const auto figure = [&](size_t comparison, const std::vector<std::string>& labels, std::string_view convention) {
    for (const Figure& f : report.comparisons[comparison].figures)
      if (f.labels == labels && f.convention == convention) return f;
    ADD_FAILURE() << labels[0] << ' ' << convention;
    return Figure{};
  };
  const std::array<std::array<double, 2>, 4> bytes{{{16, 16}, {16, 4 + 12 / 2.0}, {16, 2 + 14 / 2.0}, {16, 16 / 2.0}}};
  const std::array<std::string, 4> names{"Baseline", "ZeRO 1", "ZeRO 2", "ZeRO 3"};
  for (size_t zero = 0; zero < names.size(); ++zero) {
    const Figure dense = figure(0, {names[zero], "non-MoE", "2"}, "");
    EXPECT_DOUBLE_EQ(*dense.paper, bytes[zero][1] * p1 / 8);
    // Whole on each rank: two norms and a gate with noise a layer, a last norm; over t: learned positions.
    const double own = 80.0 * (2 * 8192 + 2 * 8192 * 2) + 8192 + 8192.0 * 8192 / 8;
    EXPECT_NEAR(*dense.ours / (bytes[zero][1] * (p1 / 8 + own)), 1, 1e-12) << names[zero];
    const Figure experts = figure(0, {names[zero], "MoE", "2"}, "");
    EXPECT_DOUBLE_EQ(*experts.paper, bytes[zero][1] * p2 / 16);
    EXPECT_NEAR(*experts.ours / (16 * p2 / 16), 1, 1e-9) << "one replica";
    if (zero > 0) {
      EXPECT_NEAR(*figure(0, {names[zero], "MoE", "1"}, "").paper / *experts.ours, 1, 1e-9);
    }
  }
  const double bshl = 8192.0 * 8192 * 80, scores = 5 * 64 * 8192.0 / 8192;
  const std::array<std::pair<std::string, double>, 5> printed{{{"Without parallelism", 13 + 42 + scores},
                                                               {"PP+TP+EP", 5 + 5 + 24 / 8.0 + scores},
                                                               {"PP+TP+EP+SP", 34 / 8.0 + scores},
                                                               {"  and selective recomputation", 34 / 8.0},
                                                               {"  and full recomputation", 2 / 8.0}}};
  for (const auto& [name, factor] : printed) {
    const Figure same = figure(1, {name}, "by construction");
    EXPECT_DOUBLE_EQ(*same.paper, bshl * factor) << name;
    if (name == "PP+TP+EP") {
      EXPECT_FALSE(same.ours.has_value());
    } else {
      EXPECT_NEAR(*same.ours / *same.paper, 1, 1e-12) << name;
    }
  }
  EXPECT_NEAR(*figure(1, {"PP+TP+EP+SP"}, "corrected").ours, bshl * (34 + scores) / 8, 1);
  const Figure a800 = figure(2, {"A800", "a800"}, "");
  EXPECT_EQ(*a800.paper, 200e9);
  const double seconds_per_byte = (256e6 * 0.875 / 200e9 / 0.776 - 64e6 * 0.875 / 200e9 / 0.726) / 192e6;
  EXPECT_NEAR(*a800.ours, 0.875 / seconds_per_byte, 1e6);
  for (const Figure& f : report.comparisons[2].figures)
    if (f.ours) {
      EXPECT_LT(*f.ours, *f.paper) << f.labels[0];
    }
}

}  // namespace
}  // namespace moe::reproduce
