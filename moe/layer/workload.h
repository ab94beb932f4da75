#pragma once
// A workload sets the experts that a benchmark's tokens want, for measurements that do not use the gate's own choices.
#include <string>

#include "moe/layer/parameter.h"
#include "moe/sharding/routing.h"

namespace moe {

/// Chooses by global token and seed only, so that all ranks agree. A token gets top_k distinct experts.
///   gate        the gate's own choices
///   balanced    every rank's own tokens want each expert alike, within 1 over all their choices
///   zipf:S      drawn one after the other, expert e with weight (e + 1)^-S among those not drawn yet
///   hot[:E]     all tokens want expert E first (0), and any others after it
///   trace:FILE  recorded: CSV with the columns token, layer, experts; the experts with blanks between them, the most
///               preferred first. Lines of unknown tokens and layers are ignored
class Workload {
 public:
  /// Throws BadInput that begins with `where` and lists the kinds.
  explicit Workload(std::string_view spec = "gate", std::string_view where = "workload");
  /// Sets the experts of the tokens that this rank gates, and `preset`. Throws Unsupported naming the gate if it does
  /// not choose the top k; BadInput with the file's line if a trace does not fit this layer.
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
