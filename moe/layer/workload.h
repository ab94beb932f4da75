#pragma once
// A workload sets the experts of a benchmark's tokens, for measurements that do not use the gate's own choices.
#include <string>

#include "moe/layer/parameter.h"
#include "moe/sharding/routing.h"

namespace moe {

/// A rule that gives each token top_k distinct experts. The choice depends only on global token and seed, so all ranks
/// agree on it.
///   gate        the gate's own choices
///   balanced    each rank's tokens choose all experts equally often; the counts differ by at most 1
///   zipf:S      draws without replacement, in which expert e has weight (e + 1)^-S
///   hot[:E]     expert E (default 0) is every token's first choice; the other choices are random
///   trace:FILE  recorded choices: a CSV file with the columns token, layer and experts, the experts separated by
/// blanks,
///               the most preferred first. Lines of unknown tokens and layers are ignored
class Workload {
 public:
  /// Parses `spec`. Throws BadInput, whose message begins with `where` and lists the kinds of workloads.
  explicit Workload(std::string_view spec = "gate", std::string_view where = "workload");
  /// Sets the experts of the tokens that this rank gates, and the routing's `preset`. Throws Unsupported naming the
  /// gate if it is no top-k gate, and BadInput naming the trace file's line if a trace does not fit this layer.
  void fill(const RankShape& rank, const LayerSeed& seed, Routing& routing) const;
  /// Returns a trace's file; empty for other kinds.
  std::string file() const { return kind_ == Kind::trace ? text_ : std::string(); }

 private:
  enum class Kind : uint8_t { gate, balanced, zipf, hot, trace };
  std::vector<double> weights(const RankShape& rank) const;

  std::string where_, text_;  // text_: the part of the spec after the colon
  Kind kind_ = Kind::gate;
  double exponent_ = 0;
  int64_t hot_ = 0;
};

/// Returns the trace's choices of all tokens of the stage, (tokens, top_k).
std::vector<int32_t> read_trace(const std::string& path, const RankShape& rank, uint64_t layer);

}  // namespace moe
