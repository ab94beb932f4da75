#include "moe/serve/routing_trace.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/serve/synthetic_routing.h"

namespace moe {
namespace {

// A file of a test's own, removed at the end.
class TraceFile {
 public:
  explicit TraceFile(const std::string& text = "")
      : path_(std::filesystem::temp_directory_path() / ("moetune-routing-" + std::to_string(::getpid()) + ".csv")) {
    std::ofstream(path_) << text;
  }
  ~TraceFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string error_of(const std::string& text, int64_t batch_tokens = 2) {
  const TraceFile file(text);
  try {
    read_routing_trace(file.path(), 4, batch_tokens);
  } catch (const BadInput& error) {
    return std::string(error.what()).substr(file.path().size());
  }
  return "none";
}

TEST(RoutingTrace, ReadsLinesInAnyOrder) {
  const TraceFile file("token,layer,experts\n1,1,0\n0,0,3 1\n1,0,2\n0,1,1 2 3\n");
  const RoutingTrace trace = read_routing_trace(file.path(), 4, 1);
  EXPECT_EQ(trace.layers, 2);
  EXPECT_EQ(trace.batches(), 2);
  EXPECT_EQ(trace.choices, (std::vector<std::vector<int32_t>>{{3, 2}, {1, 0}}));
  EXPECT_EQ(trace.counts(0, 0), (std::vector<int64_t>{0, 0, 0, 1}));
}

TEST(RoutingTrace, ComesBackAsItWasWritten) {
  const RoutingTrace drawn = generate_routing({.layers = 3, .experts = 5}, 4, 7);
  const TraceFile file;
  write_routing_trace(drawn, file.path());
  const RoutingTrace read = read_routing_trace(file.path(), 5, 7);
  EXPECT_EQ(read.choices, drawn.choices);
  EXPECT_EQ(read.part(1, 2).batch_choices(2, 1)[3], drawn.batch_choices(2, 2)[3]);
}

TEST(RoutingTrace, NamesTheLineOrTokenThatIsWrong) {
  const std::string head = "token,layer,experts\n";
  const std::string no_header =
      ": found other columns in the first line, expected a routing trace (CSV: token,layer,experts)";
  EXPECT_EQ(error_of(""), no_header);
  EXPECT_EQ(error_of("a,b,c\n"), no_header);
  EXPECT_EQ(error_of(head), ": found no token, expected at least one");
  EXPECT_EQ(error_of(head + "0,0,4\n"), ":2: experts: found '4', expected different ones from 0 to 3");
  EXPECT_EQ(error_of(head + "0,0,1 1\n"), ":2: experts: found '1 1', expected different ones from 0 to 3");
  EXPECT_EQ(error_of(head + "0,0,one\n"), ":2: experts: found 'one', expected different ones from 0 to 3");
  EXPECT_EQ(error_of(head + "0,0,1 -\n"), ":2: experts: found '1 -', expected different ones from 0 to 3");
  EXPECT_EQ(error_of(head + "0,0,1 9999999999\n"),
            ":2: experts: found '1 9999999999', expected different ones from 0 to 3");
  EXPECT_EQ(error_of(head + "18446744073709551615,0,1\n"),
            ":2: token: found 18446744073709551615, expected less than 4611686018427387904");
  EXPECT_EQ(error_of(head + "0,0,1\n0,0,2\n"), ":3: found token 0 of layer 0 twice, expected it once");
  EXPECT_EQ(error_of(head + "0,0,1\n2,0,2\n"), ": layer 0: found no token 1, expected 0 to 2");
  EXPECT_EQ(error_of(head + "0,0,1\n1,0,2\n0,1,2\n"), ": layer 1: found no token 1, expected 0 to 1");
  EXPECT_EQ(error_of(head + "0,1,1\n1,1,2\n"), ": layer 0: found no token 0, expected 0 to 1");
  EXPECT_EQ(error_of(head + "9999999999999,0,1\n"), ": layer 0: found no token 0, expected 0 to 9999999999999");
  EXPECT_EQ(error_of(head + "0,0,1\n1,0,2\n2,0,2\n"), ": found 3 tokens, expected whole batches of 2");
}

TEST(SyntheticRouting, IsTheSameWhoeverDrawsIt) {
  const SyntheticRouting source{.layers = 3, .experts = 6, .seed = 9};
  const RoutingTrace all = generate_routing(source, 5, 11), later = generate_routing(source, 2, 11, 3);
  EXPECT_EQ(all.part(3, 2).choices, later.choices);
  EXPECT_NE(all.choices, generate_routing({.layers = 3, .experts = 6, .seed = 10}, 5, 11).choices);
}

TEST(SyntheticRouting, HasThePopularityOfItsSkew) {
  const RoutingTrace trace = generate_routing({.layers = 4, .experts = 4, .skew = 1, .drift = 0}, 1, 200'000);
  for (int layer = 0; layer < 4; ++layer) {
    std::vector<int64_t> counts = trace.counts(layer, 0);
    std::ranges::sort(counts, std::greater());
    const double sum = 1 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4;
    for (size_t rank = 0; rank < 4; ++rank)
      EXPECT_NEAR(static_cast<double>(counts[rank]) / 200'000, 1 / (static_cast<double>(rank + 1) * sum), 0.005);
  }
}

TEST(SyntheticRouting, ExtremesOfCorrelation) {
  // Of correlation 1 an expert of one layer tells the next; of 0 the next has the popularity of its layer.
  const TraceStatistics all = statistics_of(generate_routing({.experts = 8, .correlation = 1, .drift = 0}, 1, 20'000));
  EXPECT_DOUBLE_EQ(all.pattern_1, 1);
  const TraceStatistics none =
      statistics_of(generate_routing({.experts = 8, .skew = 0, .correlation = 0, .drift = 0}, 1, 200'000));
  EXPECT_NEAR(none.pattern_1, 1.0 / 8, 0.01);
  EXPECT_NEAR(none.pattern_2, 2.0 / 8, 0.015);
}

TEST(RoutingTrace, StatisticsOfAFewTokens) {
  // Two layers, one batch: expert 0 has tokens 0 to 2, of which two go on to expert 1; expert 1 has token 3.
  const RoutingTrace trace{2, 2, 4, {{0, 0, 0, 1}, {1, 1, 0, 0}}};
  const TraceStatistics s = statistics_of(trace);
  EXPECT_DOUBLE_EQ(s.most_over_least, (3.0 + 1.0) / 2);
  EXPECT_DOUBLE_EQ(s.most_over_mean, (1.5 + 1.0) / 2);
  EXPECT_DOUBLE_EQ(s.pattern_1, (2.0 / 3 + 1) / 2);
  EXPECT_DOUBLE_EQ(s.pattern_2, 1);
}

TEST(SyntheticRouting, RefusesWhatIsNoSource) {
  EXPECT_THROW(generate_routing({.experts = 0}, 1, 1), BadInput);
  EXPECT_THROW(generate_routing({.skew = -1}, 1, 1), BadInput);
  EXPECT_THROW(generate_routing({.correlation = 1.5}, 1, 1), BadInput);
}

}  // namespace
}  // namespace moe
