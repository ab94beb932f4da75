#include "moe/prices/profile.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sstream>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/random.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"
#include "tests/prices/profile_parts.h"

namespace moe {
namespace {

Profile again(const Profile& profile, const Scratch& scratch) {
  return read_profile(scratch.write("again.toml", text_of(profile)));
}

/// Numbers that need all their 17 digits.
double awkward(uint64_t i) { return std::exp(-30 * random_uniform(3, random_stream_id("awkward"), i)) / 3; }

Profile full_profile() {
  Profile p;
  p.name = "full";
  p.source = "a \"source\" with \\ and\nlines, \ttabs and \x7f";
  p.nodes = 8;
  p.ranks_per_node = 4;
  p.memory_bytes = 11.0 * 1024 * kMiB;
  p.comm.push_back({Op::alltoall,
                    Network::inter,
                    8,
                    4,
                    awkward(0),
                    awkward(1),
                    "2dh",
                    0.9999,
                    0.01,
                    Range{1, 2.5e7},
                    {{1, awkward(2)}, {1e6 / 3, awkward(3)}, {25165824, 7.88e-3}}});
  p.comm.push_back({Op::saa, Network::intra, 4, 0, 0, awkward(4), "direct", {}, {}, {}, {}});
  p.compute.push_back({.op = Op::gemm,
                       .ffn = {},
                       .dtype = DType::bfloat16,
                       .alpha_s = awkward(5),
                       .beta_s_per_flop = awkward(6),
                       .r_squared = 1.0,
                       .held_out_error = 0.0,
                       .range_flops = Range{0, 1e12}});
  p.compute.push_back({.op = Op::host_copy, .alpha_s = 1e-5, .beta_s_per_byte = 4e-11});
  p.compute.push_back({.op = Op::expert,
                       .ffn = Ffn::mixtral,
                       .alpha_s = awkward(7),
                       .beta_s_per_flop = awkward(8),
                       .r_squared = {},
                       .held_out_error = {},
                       .range_flops = {}});
  p.compute.push_back({.op = Op::copy,
                       .ffn = {},
                       .alpha_s = 0,
                       .beta_s_per_byte = awkward(9),
                       .r_squared = {},
                       .held_out_error = {},
                       .range_flops = {}});
  p.modules.push_back({"attention", Phase::backward, 256, awkward(10), awkward(11)});
  p.modules.push_back({"gate:gshard", Phase::forward, {}, awkward(12), 0});
  p.modules.push_back(
      {"order:tutel", Phase::forward, {}, awkward(15), 0, awkward(16), 0.5, awkward(17), Range{awkward(18), 1e9}});
  p.comm.back().verdict = {
      awkward(19), {{1e6, awkward(20)}, {1e6, awkward(21)}}, "held-out error 20 %", "from another"};
  p.compute.front().verdict = {{}, {}, "r^2 0.5"};
  p.modules.back().verdict = {2.0, {{1, 2}}, {}};
  p.tasks.push_back({.name = "expert:gpt",
                     .phase = Phase::backward,
                     .dtype = DType::bfloat16,
                     .seconds_per_term = {awkward(22), awkward(23), 0, 0, 0, awkward(24)},
                     .min = {1, awkward(25), 0, 0, 0, 1e6},
                     .max = {1, 1e12, 0, 5, 0, 1e6},
                     .held_out_error = awkward(26),
                     .verdict = {0.5, {}, "held-out error 20 %"}});
  p.tasks.push_back({.name = "copy", .seconds_per_term = {awkward(27)}, .min = {1}, .max = {1}});
  p.unusable = {{"allgather intra 4", "found 1 size, expected at least 2"}, {"gate:gshard backward", "\"so\""}};
  p.task_overhead_s = awkward(13);
  int place = 20;
  for (const ContentionPair& pair : contention_pairs()) {
    p.contention.*pair.factor = 1 + awkward(place++);
    pair.stall_s(p.contention) = awkward(place++);
  }
  return p;
}

void expect_same(const CommRow& a, const CommRow& b) {
  EXPECT_EQ(std::tie(a.op, a.network, a.ranks, a.ranks_per_node, a.alpha_s, a.beta_s_per_byte, a.algorithm),
            std::tie(b.op, b.network, b.ranks, b.ranks_per_node, b.alpha_s, b.beta_s_per_byte, b.algorithm));
  EXPECT_EQ(std::tie(a.r_squared, a.held_out_error, a.range_bytes, a.points),
            std::tie(b.r_squared, b.held_out_error, b.range_bytes, b.points));
  EXPECT_EQ(a.verdict, b.verdict);
}

void expect_same(const ComputeRow& a, const ComputeRow& b) {
  EXPECT_EQ(std::tie(a.op, a.ffn, a.dtype, a.alpha_s, a.beta_s_per_flop, a.beta_s_per_byte),
            std::tie(b.op, b.ffn, b.dtype, b.alpha_s, b.beta_s_per_flop, b.beta_s_per_byte));
  EXPECT_EQ(std::tie(a.r_squared, a.held_out_error, a.range_flops),
            std::tie(b.r_squared, b.held_out_error, b.range_flops));
  EXPECT_EQ(a.verdict, b.verdict);
}

void expect_same(const ModuleRow& a, const ModuleRow& b) {
  EXPECT_EQ(std::tie(a.name, a.phase, a.seq, a.alpha_s, a.beta_s_per_flop, a.beta_s_per_byte),
            std::tie(b.name, b.phase, b.seq, b.alpha_s, b.beta_s_per_flop, b.beta_s_per_byte));
  EXPECT_EQ(std::tie(a.r_squared, a.held_out_error, a.range), std::tie(b.r_squared, b.held_out_error, b.range));
  EXPECT_EQ(a.verdict, b.verdict);
}

void expect_same(const TaskRow& a, const TaskRow& b) {
  EXPECT_EQ(std::tie(a.name, a.phase, a.dtype, a.seconds_per_term, a.min, a.max, a.held_out_error, a.verdict),
            std::tie(b.name, b.phase, b.dtype, b.seconds_per_term, b.min, b.max, b.held_out_error, b.verdict));
}

template <class Row>
void expect_same_rows(const std::vector<Row>& a, const std::vector<Row>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) expect_same(a[i], b[i]);
}

void expect_same(const Profile& a, const Profile& b) {
  EXPECT_EQ(std::tie(a.name, a.source, a.nodes, a.ranks_per_node, a.memory_bytes, a.task_overhead_s),
            std::tie(b.name, b.source, b.nodes, b.ranks_per_node, b.memory_bytes, b.task_overhead_s));
  expect_same_rows(a.comm, b.comm);
  expect_same_rows(a.compute, b.compute);
  expect_same_rows(a.modules, b.modules);
  expect_same_rows(a.tasks, b.tasks);
  EXPECT_EQ(a.unusable, b.unusable);
  EXPECT_EQ(a.contention, b.contention);
}

TEST(Profile, SurvivesItsFile) {
  const Scratch scratch;
  const Profile profile = full_profile();
  const Profile read = again(profile, scratch);
  expect_same(read, profile);
  EXPECT_EQ(text_of(read), text_of(profile));
  EXPECT_EQ(read.file, scratch.path("again.toml"));
}

TEST(Profile, EveryPresetSurvivesItsFile) {
  const Scratch scratch;
  for (const auto& name : config_names("clusters")) {
    const Profile preset = find_profile(name);
    EXPECT_EQ(preset.name, name);
    expect_same(again(preset, scratch), preset);
  }
}

TEST(Profile, ComputationsOfAnotherClusterFillWhatIsMissing) {
  const Profile h100 = find_profile("h100-8");
  Profile logs = small_profile();
  logs.source = "logs";
  logs.compute.clear();
  EXPECT_EQ(text_of_origins(logs), "");
  Profile filled = logs;
  const std::vector<std::string> all{"gemm bfloat16", "gemm float16", "copy", "[gpu]"};
  EXPECT_EQ(take_compute_prices(filled, h100), all);
  EXPECT_EQ(text_of_origins(filled), "gemm bfloat16, gemm float16, copy, [gpu] from h100-8");
  EXPECT_EQ(filled.memory_bytes, 80e9);
  expect_same_rows(filled.comm, logs.comm);
  ASSERT_EQ(filled.compute.size(), 3U);
  for (size_t i = 0; i < filled.compute.size(); ++i) {
    EXPECT_EQ(filled.compute[i].verdict.origin, "from h100-8");
    filled.compute[i].verdict.origin.clear();
    expect_same(filled.compute[i], h100.compute[i]);
  }
  ASSERT_EQ(filled.gpu->attention.size(), 4U);
  EXPECT_TRUE(take_compute_prices(filled, h100).size() == 0) << "all are known";

  // What was taken before keeps its origin, also through a file.
  const Scratch scratch;
  filled = logs;
  take_compute_prices(filled, h100);
  filled.name = "first";
  Profile second = logs;
  take_compute_prices(second, again(filled, scratch));
  EXPECT_EQ(text_of_origins(second), "gemm bfloat16, gemm float16, copy, [gpu] from h100-8");

  // Measured GEMMs in 16 bits stay, and no model comes before them.
  Profile measured = logs;
  measured.compute.push_back({.op = Op::gemm, .dtype = DType::bfloat16, .alpha_s = 1e-6, .beta_s_per_flop = 2e-15});
  measured.memory_bytes = 40e9;
  EXPECT_EQ(take_compute_prices(measured, h100), (std::vector<std::string>{"gemm float16", "copy"}));
  EXPECT_EQ(measured.compute.front().beta_s_per_flop, 2e-15);
  EXPECT_FALSE(measured.gpu);
  EXPECT_EQ(measured.memory_bytes, 40e9);

  Profile modules = logs;
  take_compute_prices(modules, find_profile("testbed-b"));
  EXPECT_EQ(modules.modules.size(), find_profile("testbed-b").modules.size());
  EXPECT_EQ(modules.modules.front().verdict.origin, "from testbed-b");
}

TEST(Profile, AnUnknownNameListsThePresets) {
  const auto message = error_of<BadInput>([] { find_profile("testbed-z"); });
  std::vector<std::string> names = config_names("clusters");
  names.emplace_back("h100-4x8-ib-400");  // the example of a composed one
  std::ranges::sort(names);
  EXPECT_EQ(message,
            fmt::format("cluster: found 'testbed-z', expected a file or one of: {}; did you mean 'testbed-a' or "
                        "'testbed-b'?",
                        fmt::join(names, ", ")));
}

const CommRow& row(const Profile& profile, Op op, int ranks) {
  for (const auto& found : profile.comm)
    if (found.op == op && found.ranks == ranks) return found;
  throw BadInput("no such row");
}

// Milliseconds and ms per unit as printed; `units` of them are one byte.
void expect_row(const CommRow& found, Network network, double alpha_ms, double beta_ms, double units) {
  EXPECT_EQ(found.network, network) << name_of(found.op);
  EXPECT_NEAR(found.alpha_s * 1e3, alpha_ms, 1e-12) << name_of(found.op);
  EXPECT_NEAR(found.beta_s_per_byte * 1e3 / (beta_ms * units), 1, 1e-12) << name_of(found.op);
}

TEST(Presets, TestbedBIsFigure5PerByte) {
  const Profile b = find_profile("testbed-b");
  EXPECT_EQ(b.nodes, 8);
  EXPECT_EQ(b.memory_bytes, 11.0 * 1024 * kMiB);
  EXPECT_EQ(b.ranks_per_node, 4);
  EXPECT_EQ(b.comm.size(), 4u);
  expect_row(row(b, Op::alltoall, 8), Network::inter, 1.75e-1, 3.06e-7, 1);
  expect_row(row(b, Op::allgather, 4), Network::intra, 3.20e-2, 1.68e-7, 1);
  expect_row(row(b, Op::reducescatter, 4), Network::intra, 3.91e-2, 1.67e-7, 1);
  expect_row(row(b, Op::allreduce, 8), Network::inter, 8.37e-2, 5.99e-7, 1);
  ASSERT_EQ(b.compute.size(), 1u);
  EXPECT_NEAR(b.compute[0].alpha_s, 9.24e-5, 1e-15);
  EXPECT_NEAR(b.compute[0].beta_s_per_flop, 4.42e-14, 1e-24);
}

TEST(Presets, TestbedBsAttentionDoublesBackward) {
  const Profile b = find_profile("testbed-b");
  struct Printed {
    int64_t seq;
    double alpha_ms, beta_ms_per_mac;
  };
  ASSERT_EQ(b.modules.size(), 6u);
  size_t i = 0;
  for (const auto& [seq, alpha_ms, beta_ms] :
       {Printed{256, 9.061728879e-1, 1.6690605555e-10}, Printed{512, 7.674542565e-1, 1.7435315251e-10},
        Printed{1024, 6.4634952121e-1, 2.5884462453e-10}})
    for (const auto phase : {Phase::forward, Phase::backward}) {
      const ModuleRow& found = b.modules[i++];
      EXPECT_EQ(found.name, "attention");
      EXPECT_EQ(found.phase, phase);
      EXPECT_EQ(found.seq, seq);
      const double macs = 1e10, passes = phase == Phase::backward ? 2 : 1;
      const double seconds = found.alpha_s + found.beta_s_per_flop * passes * 2 * macs;  // its own phase's FLOPs
      EXPECT_NEAR(seconds, passes * (alpha_ms + beta_ms * macs) * 1e-3, 1e-12);
    }
}

TEST(Presets, TestbedAIsTheDriversPerElement) {
  for (const char* name : {"testbed-a", "testbed-a-driver-experts"}) {
    const Profile a = find_profile(name);
    EXPECT_EQ(a.nodes * a.ranks_per_node, 48);
    EXPECT_EQ(a.comm.size(), 6u);
    expect_row(row(a, Op::alltoall, 6), Network::inter, 2.8745790958e-1, 2.3201445211e-6, 0.25);
    expect_row(row(a, Op::allgather, 8), Network::intra, 3.3789345076e-1, 2.3477633843e-7, 0.25);
    expect_row(row(a, Op::reducescatter, 8), Network::intra, 3.9538829900e-1, 2.2171110136e-7, 0.25);
    expect_row(row(a, Op::allreduce, 6), Network::inter, 5.1136532051e-1, 4.9511764052e-6, 0.25);
    expect_row(row(a, Op::alltoall, 4), Network::inter, 2.3515350484e-1, 1.8543323833e-6, 0.25);
    expect_row(row(a, Op::allreduce, 4), Network::inter, 3.4099276392e-1, 3.4950701465e-6, 0.25);
    EXPECT_NEAR(a.compute.at(0).alpha_s, 4.26e-5, 1e-15);
    EXPECT_NEAR(a.compute.at(0).beta_s_per_flop, 2.29e-14, 1e-24);
  }
}

TEST(Presets, TheDriversExpertsCountTwoGemms) {
  const Profile a = find_profile("testbed-a-driver-experts");
  ASSERT_EQ(a.compute.size(), 3u);
  const double two_gemms = 1e10;  // multiply-accumulates of two of an expert's GEMMs
  EXPECT_EQ(a.compute[1].ffn, Ffn::gpt);
  EXPECT_NEAR(a.compute[1].beta_s_per_flop * 2 * two_gemms, 7.6571211065e-11 * two_gemms * 1e-3, 1e-12);
  EXPECT_EQ(a.compute[2].ffn, Ffn::mixtral);
  EXPECT_NEAR(a.compute[2].beta_s_per_flop * 2 * 1.5 * two_gemms, 1.58592751025e-10 * two_gemms * 1e-3, 1e-12);
  EXPECT_NEAR(a.compute[2].alpha_s, 9.5673161e-4, 1e-15);
}

TEST(Presets, TestbedAPrintedKeepsTheMisprint) {
  const Profile a = find_profile("testbed-a-printed");
  expect_row(row(a, Op::alltoall, 6), Network::inter, 2.87e-1, 2.21e-7, 1);
  expect_row(row(a, Op::allgather, 8), Network::intra, 3.37e-1, 2.32e-6, 1);
  expect_row(row(a, Op::reducescatter, 8), Network::intra, 3.95e-1, 2.34e-7, 1);
  expect_row(row(a, Op::allreduce, 6), Network::inter, 5.11e-1, 4.95e-6, 1);
}

TEST(Presets, TheOptimisersExpertIsThreeGemms) {
  const Profile o = find_profile("fsmoe-optimiser");
  EXPECT_EQ(o.nodes, 4);
  EXPECT_EQ(o.ranks_per_node, 8);
  expect_row(row(o, Op::alltoall, 4), Network::inter, .23515350484, 1.8543323833e-6, 0.25);
  expect_row(row(o, Op::allgather, 8), Network::intra, .0549, 6.72388e-7, 0.25);
  expect_row(row(o, Op::reducescatter, 8), Network::intra, .0688, 6.70433e-7, 0.25);
  expect_row(row(o, Op::allreduce, 4), Network::inter, .34099276392, 3.4950701465e-6, 0.25);
  EXPECT_NEAR(3 * o.compute.at(0).alpha_s, .591943532e-3, 1e-15);
  EXPECT_NEAR(2 * o.compute.at(0).beta_s_per_flop * 1e3 / 5.6847387697e-11, 1, 1e-12);
}

}  // namespace
}  // namespace moe
