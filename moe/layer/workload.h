#pragma once
// A workload says which experts a bench's tokens want, where the gate's own choices are not what shall be measured.
#include <string>

#include "moe/layer/parameter.h"
#include "moe/sharding/routing.h"

namespace moe {

/// Chooses by global token and seed alone, so that all ranks agree whoever gates. A token gets top_k distinct experts.
///   gate        what the gate says
///   balanced    every rank's own tokens want each expert alike, within 1 over all their choices
///   zipf:S      drawn one after the other, expert e with weight (e + 1)^-S among those not drawn yet
///   hot[:E]     all tokens want expert E first (0), and any others after it
///   trace:FILE  recorded: CSV with the columns token, layer, experts; the experts with blanks between them, the most
///               preferred first. Lines of tokens and layers that there are not are left out
class Workload {
 public:
  /// Throws BadInput that begins with `where` and lists the kinds.
  explicit Workload(std::string_view spec = "gate", std::string_view where = "workload");
  /// Sets the experts of the tokens that this rank gates, and `preset`. Throws Unsupported naming the gate if it does
  /// not choose the top k; BadInput with the file's line if a trace is not of this layer.
  void fill(const RankShape& rank, const LayerSeed& seed, Routing& routing) const;
  /// Names a trace's file; else it is empty.
  std::string file() const { return kind_ == Kind::trace ? text_ : std::string(); }

 private:
  enum class Kind : uint8_t { gate, balanced, zipf, hot, trace };
  std::vector<double> weights(const RankShape& rank) const;

  std::string where_, text_;  // of the spec: after the colon
  Kind kind_ = Kind::gate;
  double exponent_ = 0;
  int64_t hot_ = 0;
};

/// Returns the trace's choices of all tokens of the stage, (tokens, top_k).
std::vector<int32_t> read_trace(const std::string& path, const RankShape& rank, uint64_t layer);

}  // namespace moe
