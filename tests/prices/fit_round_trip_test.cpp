// Whatever a fit writes, the reader takes: over random records, among them odd ones.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/prices/fit.h"
#include "tests/base/scratch.h"
#include "tests/prices/profile_parts.h"

namespace moe {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN(), kEndless = std::numeric_limits<double>::infinity();

/// Records as a microbench, or another program, may write them; some of what is drawn can't be part of a profile.
class RandomRecords {
 public:
  explicit RandomRecords(uint64_t seed) : seed_(seed), odd_(draw(2) == 0) {
    cluster_ = one_of<std::string>({"tiny", "a-1", "my cluster"});
    nodes_ = one_of<int64_t>({1, 2, 8}, {0, -3, int64_t{1} << 40, 65537});
    ranks_per_node_ = one_of<int64_t>({2, 4}, {1, 0, 1025, INT64_MAX});
    const int series = 1 + static_cast<int>(draw(6));
    for (int i = 0; i < series; ++i) add_series();
    if (draw(2) == 0) add_extras();
  }

  std::vector<CaseRecord> cases;
  std::string name() {
    return one_of<std::string>({"mine", "my cluster", "K\xC3\xB6ln", "\"quoted\" \\"}, {"", "a/b", "x\ny", "\xff"});
  }
  std::string source() { return one_of<std::string>({"fitted from r.jsonl", "from \xff\xfe\n", "\"\\\t\x01"}); }

 private:
  uint64_t draw(uint64_t below) { return random_bits(seed_, random_stream_id("records"), drawn_++) % below; }
  double uniform() { return random_uniform(seed_, random_stream_id("numbers"), drawn_++); }
  template <class T>
  T one_of(std::vector<T> usual, std::vector<T> odd = {}) {
    const std::vector<T>& from = odd_ && !odd.empty() && draw(8) == 0 ? odd : usual;
    return from[draw(from.size())];
  }

  CaseRecord& add(Fields parameters, double seconds) {
    CaseRecord& record = cases.emplace_back();
    record.key = std::to_string(cases.size());
    record.where = "r.jsonl:" + record.key;
    record.parameters = std::move(parameters);
    record.parameters.set("cluster", cluster_);
    record.parameters.set("nodes", nodes_);
    record.parameters.set("ranks_per_node", ranks_per_node_);
    record.summary = {{"median_s", seconds}};
    return record;
  }

  Fields row() {
    if (draw(2) == 0) {
      Fields fields{{"op", one_of<std::string>({"alltoall", "allgather", "reducescatter", "allreduce", "sendrecv",
                                                "a2a-ep-esp", "saa"})},
                    {"network", one_of<std::string>({"inter", "intra"}, {"wifi"})},
                    {"ranks", one_of<int64_t>({2}, {1, 4, 8, 64, INT64_MAX})}};
      if (draw(2) == 0) fields.set("algorithm", one_of<std::string>({"direct", "1dh", "2dh"}, {"ring", "", "a \"b\""}));
      return fields;
    }
    if (draw(3) == 0)
      return {{"op", "gemm"}, {"dtype", one_of<std::string>({"float32", "bfloat16", "float64"})}, {"gemms", 1}};
    if (draw(2) == 0) {
      Fields fields{{"op", "task"},
                    {"name", one_of<std::string>({"attention", "expert:gpt"}, {"my own", ""})},
                    {"phase", one_of<std::string>({"forward", "backward"})},
                    {"dtype", one_of<std::string>({"float32", "bfloat16"}, {"int8"})}};
      if (draw(4) > 0) fields.set("call", one_of<double>({1}, {0, -1, kNone, kEndless}));
      if (draw(2) == 0) fields.set("row_byte", one_of<double>({1e6, 3e8}, {0, -1, kNone, kEndless}));
      return fields;
    }
    Fields fields{{"op", "module"},
                  {"name", one_of<std::string>({"attention", "gate:gshard", "order:tutel", "hook:bf16", "my:own"},
                                               {"my own", "", "\xff"})},
                  {"phase", one_of<std::string>({"forward", "backward"})}};
    if (draw(2) == 0) fields.set("seq", one_of<int64_t>({1, 256, INT64_MAX}, {0, -1}));
    return fields;
  }

  // Of times that follow a line, or follow nothing at all.
  void add_series() {
    const Fields fields = row();
    const bool line = draw(4) > 0;
    const double alpha = std::exp(-10 * uniform()), beta = std::exp(-25 * uniform());
    const double scale = odd_ && draw(4) == 0 ? 700 : 20;  // to the ends of what a double holds
    const int samples = 1 + static_cast<int>(draw(12));
    for (int i = 1; i <= samples; ++i) {
      const double size = line ? i * 1e6 : std::exp(scale * (2 * uniform() - 1));
      double seconds = line ? (alpha + beta * size) * (1 + 0.1 * uniform()) : std::exp(scale * (2 * uniform() - 1));
      if (draw(10) == 0) seconds *= 30;
      CaseRecord& record = add(fields, one_of<double>({seconds}, {0, -1, kNone, kEndless}));
      record.parameters.set("bytes", size);
      record.parameters.set("flops", size);
      if (fields.text("op", "") == "task") record.parameters.set("flop", size);
      if (draw(20) == 0 && i > 1) record.parameters.set("again_of", cases[cases.size() - 2].key);
    }
  }

  void add_extras() {
    add({{"op", "overhead"}}, 1).summary.set("crossing_s", one_of<double>({0, 3e-6}, {-1e-6, kNone, kEndless}));
    CaseRecord& record = add({{"op", "slowdown"}, {"lane", "inter"}, {"by", "intra"}}, 1);
    record.summary.set("factor", one_of<double>({1, 1.3, 40}, {0.9, kNone, kEndless}));
    add({{"op", "overlap"}}, 1);
  }

  uint64_t seed_, drawn_ = 0;
  bool odd_;
  std::string cluster_;
  int64_t nodes_ = 0, ranks_per_node_ = 0;
};

TEST(FitRoundTrip, WhatIsWrittenIsRead) {
  const Scratch scratch;
  int written = 0, refused = 0, unusable = 0, weak = 0, aside = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    RandomRecords records(seed);
    FittedProfile fitted;
    try {
      fitted = fit_profile(records.cases, records.name(), records.source());
    } catch (const BadInput& error) {
      const std::string_view line = error.what();
      EXPECT_TRUE(line.starts_with("r.jsonl:") || line.starts_with("name: found")) << seed << ": " << line;
      EXPECT_EQ(line.find('\n'), line.npos) << seed;
      ++refused;
      continue;
    }
    ++written;
    const std::string text = text_of(fitted.profile);
    const Profile read = read_profile(scratch.write("fitted.toml", text));
    EXPECT_EQ(text_of(read), text) << seed;
    EXPECT_EQ(read.name, fitted.profile.name);
    EXPECT_EQ(read.unusable, fitted.profile.unusable);
    unusable += !read.unusable.empty();
    for (const FittedRow& row : fitted.rows) weak += row.fit.weak.has_value(), aside += !row.fit.set_aside.empty();
  }
  EXPECT_GT(written, 300);
  EXPECT_GT(refused, 200);
  EXPECT_GT(unusable, 50);
  EXPECT_GT(weak, 50);
  EXPECT_GT(aside, 50);
  fmt::print("{} written and read, {} refused by line\n", written, refused);
}

}  // namespace
}  // namespace moe
