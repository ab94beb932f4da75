#pragma once
// Traces of routing: which experts tokens prefer in which layer, as recorded or drawn. As CSV they have the columns
// token, layer, experts; the experts with blanks between them, the most preferred first.
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

/// What a reader expects of each line's experts.
struct ExpectedChoices {
  int64_t experts = 0;                            // of a layer
  std::optional<int64_t> choices = std::nullopt;  // of a token; none: one or more
};

/// Calls `take(line, number of the line)` with each line of a trace file that `wanted(token, layer)` accepts, in the
/// file's order. Throws BadInput with the file's line.
void read_routed_tokens(const std::string& path, const ExpectedChoices& expected,
                        const std::function<bool(uint64_t, uint64_t)>& wanted,
                        const std::function<void(const RoutedToken&, unsigned)>& take);

/// Writes a trace file of these lines, in their order.
void write_routed_tokens(const std::string& path, std::span<const RoutedToken> lines);

/// Returns the numbers of a text with blanks between them; none where it is anything else.
std::vector<int32_t> numbers_in(std::string_view text);

/// The expert that each token prefers most in each layer, batch by batch.
struct RoutingTrace {
  int layers = 0, experts = 0;
  int64_t batch_tokens = 0;
  std::vector<std::vector<int32_t>> choices;  // by layer, then by token

  int64_t tokens() const { return choices.empty() ? 0 : static_cast<int64_t>(choices.front().size()); }
  int64_t batches() const { return batch_tokens == 0 ? 0 : tokens() / batch_tokens; }
  std::span<const int32_t> of(int layer, int64_t batch) const;
  /// Counts the tokens of each expert of a layer in a batch.
  std::vector<int64_t> counts(int layer, int64_t batch) const;
  /// Returns the batches from `first` on, `count` of them.
  RoutingTrace part(int64_t first, int64_t count) const;
};

/// Returns the trace of a gate that sends every expert of a layer as many of each batch's tokens, within one.
RoutingTrace balanced_routing(RoutingTrace trace);

/// Reads a trace whose consecutive tokens make batches of `batch_tokens`. Throws BadInput with the file's line, or for
/// a token that a layer lacks, or a batch that is not whole.
RoutingTrace read_routing_trace(const std::string& path, int experts, int64_t batch_tokens);

/// Writes a trace as such a file.
void write_routing_trace(const RoutingTrace& trace, const std::string& path);

/// What traces look like, for comparison with what papers print of theirs.
struct TraceStatistics {
  /// The tokens of the most popular expert over those of the least popular, in the median over batches and layers.
  double most_over_least = 0;
  /// The tokens of the most popular expert over the mean, likewise.
  double most_over_mean = 0;
  /// Of the tokens with the same expert in a layer: the share that prefers the expert most popular among them in the
  /// next layer, or one of the two; means over these groups (Lina, Figure 9).
  double pattern_1 = 0, pattern_2 = 0;
};
TraceStatistics statistics_of(const RoutingTrace& trace);

}  // namespace moe
