#pragma once
// Routing traces: the experts that each token prefers in each layer, recorded or random. In CSV files they have the
// columns token, layer, experts, where the last is a list separated by blanks, the most preferred expert first.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moe {

/// One line of a trace file.
struct RoutedToken {
  uint64_t token = 0, layer = 0;
  std::vector<int32_t> experts;  // different ones, the most preferred first
};

/// The limits that a reader checks for each line's experts.
struct ExpectedChoices {
  int64_t experts = 0;                            // number of experts of a layer
  std::optional<int64_t> choices = std::nullopt;  // experts per token; empty: one or more
};

/// Calls take(line, line number) for each line of a trace file for which wanted(token, layer) is true, in file order.
/// Throws BadInput naming file and line.
void read_routed_tokens(const std::string& path, const ExpectedChoices& expected,
                        const std::function<bool(uint64_t, uint64_t)>& wanted,
                        const std::function<void(const RoutedToken&, unsigned)>& take);

/// Writes a trace file with these lines, in their order.
void write_routed_tokens(const std::string& path, std::span<const RoutedToken> lines);

/// Returns the numbers in a text of numbers separated by blanks; empty for any other text.
std::vector<int32_t> numbers_in(std::string_view text);

/// The expert that each token prefers most in each layer, batch by batch.
struct RoutingTrace {
  int layers = 0, experts = 0;
  int64_t batch_tokens = 0;
  std::vector<std::vector<int32_t>> choices;  // for each layer, then for each token

  int64_t tokens() const { return choices.empty() ? 0 : static_cast<int64_t>(choices.front().size()); }
  int64_t batches() const { return batch_tokens == 0 ? 0 : tokens() / batch_tokens; }
  std::span<const int32_t> batch_choices(int layer, int64_t batch) const;
  /// Returns the number of tokens of each expert of a layer in a batch.
  std::vector<int64_t> counts(int layer, int64_t batch) const;
  /// Returns a trace of `count` batches from batch `first` on.
  RoutingTrace part(int64_t first, int64_t count) const;
};

/// Returns a trace of the same size in which all experts of a layer get the same number of tokens of each batch, up to
/// a difference of one.
RoutingTrace balanced_routing(RoutingTrace trace);

/// Reads a trace and divides it into batches of `batch_tokens` consecutive tokens. Throws BadInput naming file and line
/// for an invalid line, and if a layer lacks a token or the last batch is not full.
RoutingTrace read_routing_trace(const std::string& path, int experts, int64_t batch_tokens);

/// Writes a trace file.
void write_routing_trace(const RoutingTrace& trace, const std::string& path);

/// Statistics of a trace, as papers report them.
struct TraceStatistics {
  /// Ratio of the most popular expert's tokens to the least popular expert's; median over batches and layers.
  double most_over_least = 0;
  /// Ratio of the most popular expert's tokens to the mean; median over batches and layers.
  double most_over_mean = 0;
  /// Of a group of tokens with the same expert in a layer: the share that prefers the group's most popular expert
  /// (pattern_1) or one of its two most popular experts (pattern_2) in the next layer; means over groups (Lina, Figure
  /// 9).
  double pattern_1 = 0, pattern_2 = 0;
};
TraceStatistics statistics_of(const RoutingTrace& trace);

}  // namespace moe
