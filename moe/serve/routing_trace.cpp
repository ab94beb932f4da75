#include "moe/serve/routing_trace.h"

#define CSV_IO_NO_THREAD
#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>
#include <fstream>
#include <libfccp/csv.h>
#include <numeric>
#include <sstream>

#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/statistics.h"

namespace moe {
namespace {

using TraceReader = io::CSVReader<3, io::trim_chars<' ', '\t'>, io::no_quote_escape<','>, io::throw_on_overflow,
                                  io::single_line_comment<'#'>>;

constexpr std::string_view kExpectedTrace = "a routing trace (CSV: token,layer,experts)";
constexpr uint64_t kMaxTokens = uint64_t{1} << 62;

bool fits(const std::vector<int32_t>& found, const ExpectedChoices& expected) {
  if (found.empty() || (expected.choices && static_cast<int64_t>(found.size()) != *expected.choices)) return false;
  std::vector<int32_t> sorted = found;
  std::ranges::sort(sorted);
  return sorted.front() >= 0 && sorted.back() < expected.experts && std::ranges::adjacent_find(sorted) == sorted.end();
}

std::string wanted_choices(const ExpectedChoices& expected) {
  return fmt::format("{}different ones from 0 to {}", expected.choices ? fmt::format("{} ", *expected.choices) : "",
                     expected.experts - 1);
}

}  // namespace

std::vector<int32_t> numbers_in(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::vector<int32_t> found;
  while (!(words >> std::ws).eof()) {
    if (int32_t number = 0; words >> number)
      found.push_back(number);
    else
      return {};
  }
  return found;
}

void read_routed_tokens(const std::string& path, const ExpectedChoices& expected,
                        const std::function<bool(uint64_t, uint64_t)>& wanted,
                        const std::function<void(const RoutedToken&, unsigned)>& take) {
  std::ifstream file(path);
  std::error_code no_folder;
  require<BadInput>(file.is_open() && !std::filesystem::is_directory(path, no_folder),
                    "{}: found no readable file, expected {}", path, kExpectedTrace);
  try {
    TraceReader reader(path, file);
    try {
      reader.read_header(io::ignore_no_column, "token", "layer", "experts");
    } catch (const io::error::base&) {
      bad_input("{}: found other columns in the first line, expected {}", path, kExpectedTrace);
    }
    RoutedToken line;
    for (std::string text; reader.read_row(line.token, line.layer, text);) {
      if (!wanted(line.token, line.layer)) continue;
      line.experts = numbers_in(text);
      require<BadInput>(fits(line.experts, expected), "{}:{}: experts: found '{}', expected {}", path,
                        reader.get_file_line(), text, wanted_choices(expected));
      take(line, reader.get_file_line());
    }
  } catch (const io::error::base& error) {
    bad_input("{}: {}", path, error.what());
  }
}

std::span<const int32_t> RoutingTrace::batch_choices(int layer, int64_t batch) const {
  return std::span(choices[layer])
      .subspan(static_cast<size_t>(batch * batch_tokens), static_cast<size_t>(batch_tokens));
}

std::vector<int64_t> RoutingTrace::counts(int layer, int64_t batch) const {
  std::vector<int64_t> counts(experts);
  for (const int32_t expert : batch_choices(layer, batch)) ++counts[expert];
  return counts;
}

RoutingTrace RoutingTrace::part(int64_t first, int64_t count) const {
  RoutingTrace part{layers, experts, batch_tokens, {}};
  for (const std::vector<int32_t>& layer : choices)
    part.choices.emplace_back(layer.begin() + first * batch_tokens, layer.begin() + (first + count) * batch_tokens);
  return part;
}

RoutingTrace balanced_routing(RoutingTrace trace) {
  for (std::vector<int32_t>& layer : trace.choices)
    for (size_t t = 0; t < layer.size(); ++t)
      layer[t] = static_cast<int32_t>(static_cast<int64_t>(t) % trace.batch_tokens % trace.experts);
  return trace;
}

RoutingTrace read_routing_trace(const std::string& path, int experts, int64_t batch_tokens) {
  struct Choice {
    uint64_t layer, token;
    int32_t expert;
    unsigned line;
  };
  std::vector<Choice> found;
  uint64_t tokens = 0;
  read_routed_tokens(
      path, {.experts = experts}, [](uint64_t, uint64_t) { return true; },
      [&](const RoutedToken& line, unsigned number) {
        require<BadInput>(line.token < kMaxTokens, "{}:{}: token: found {}, expected less than {}", path, number,
                          line.token, kMaxTokens);
        found.push_back({line.layer, line.token, line.experts.front(), number});
        tokens = std::max(tokens, line.token + 1);
      });
  require<BadInput>(!found.empty(), "{}: found no token, expected at least one", path);
  std::ranges::stable_sort(found, {}, [](const Choice& c) { return std::pair(c.layer, c.token); });
  RoutingTrace trace{0, experts, batch_tokens, {}};
  for (size_t i = 0; i < found.size() || i % tokens != 0; ++i) {
    const uint64_t layer = i / tokens, token = i % tokens;
    const bool is_there = i < found.size() && found[i].layer == layer && found[i].token == token;
    const bool is_twice = !is_there && i > 0 && i < found.size() && found[i].layer == found[i - 1].layer &&
                          found[i].token == found[i - 1].token;
    if (is_twice)
      bad_input("{}:{}: found token {} of layer {} twice, expected it once", path, found[i].line, found[i].token,
                found[i].layer);
    require<BadInput>(is_there, "{}: layer {}: found no token {}, expected 0 to {}", path, layer, token, tokens - 1);
    if (token == 0) trace.choices.emplace_back();
    trace.choices.back().push_back(found[i].expert);
  }
  trace.layers = static_cast<int>(trace.choices.size());
  require<BadInput>(trace.tokens() % batch_tokens == 0, "{}: found {} tokens, expected whole batches of {}", path,
                    trace.tokens(), batch_tokens);
  return trace;
}

void write_routed_tokens(const std::string& path, std::span<const RoutedToken> lines) {
  write_whole_file(path, "a file for the routing trace", [&](std::ostream& out) {
    out << "token,layer,experts\n";
    for (const RoutedToken& line : lines)
      out << fmt::format("{},{},{}\n", line.token, line.layer, fmt::join(line.experts, " "));
  });
}

void write_routing_trace(const RoutingTrace& trace, const std::string& path) {
  std::vector<RoutedToken> lines;
  for (size_t layer = 0; layer < trace.choices.size(); ++layer)
    for (size_t token = 0; token < trace.choices[layer].size(); ++token)
      lines.push_back({token, layer, {trace.choices[layer][token]}});
  write_routed_tokens(path, lines);
}

namespace {

// For each group of tokens with the same expert in `layer`, adds to `first` and `two` the shares of the group that
// prefer its most popular expert, or its two most popular ones, in the next layer.
void add_patterns(const RoutingTrace& trace, size_t layer, std::vector<double>& first, std::vector<double>& two) {
  const size_t experts = static_cast<size_t>(trace.experts);
  std::vector<std::vector<int64_t>> next(experts, std::vector<int64_t>(experts));
  for (size_t token = 0; token < trace.choices[layer].size(); ++token)
    ++next[trace.choices[layer][token]][trace.choices[layer + 1][token]];
  for (std::vector<int64_t>& counts : next) {
    const auto tokens = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    if (tokens == 0) continue;
    std::ranges::sort(counts, std::greater());
    first.push_back(static_cast<double>(counts[0]) / tokens);
    two.push_back(static_cast<double>(counts[0] + (experts > 1 ? counts[1] : 0)) / tokens);
  }
}

}  // namespace

TraceStatistics statistics_of(const RoutingTrace& trace) {
  std::vector<double> over_least, over_mean, first, two;
  for (int layer = 0; layer < trace.layers; ++layer) {
    for (int64_t batch = 0; batch < trace.batches(); ++batch) {
      const std::vector<int64_t> counts = trace.counts(layer, batch);
      const auto [least, most] = std::ranges::minmax(counts);
      over_least.push_back(static_cast<double>(most) / static_cast<double>(std::max<int64_t>(1, least)));
      over_mean.push_back(static_cast<double>(most) * trace.experts / static_cast<double>(trace.batch_tokens));
    }
    if (layer + 1 < trace.layers) add_patterns(trace, static_cast<size_t>(layer), first, two);
  }
  TraceStatistics s{.most_over_least = median(over_least), .most_over_mean = median(over_mean)};
  if (!first.empty()) s.pattern_1 = mean(first);
  if (!two.empty()) s.pattern_2 = mean(two);
  return s;
}

}  // namespace moe
