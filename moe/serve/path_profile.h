#pragma once
// Estimates of experts' popularity before the gate runs: tokens that chose the same experts in the previous layers tend
// to choose the same expert in the next layer (Lina, section 5.2).
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "moe/serve/routing_trace.h"

namespace moe {

/// For each layer and path, the share of tokens that chose each expert. A path is the sequence of experts that a token
/// chose in the `length` previous layers. A path that was never seen has the layer's distribution over all tokens.
class PathProfile {
 public:
  struct Follower {
    int32_t expert = 0;
    double share = 0;  // share of the path's tokens that chose `expert`
  };

  /// Counts all tokens of a trace. Throws BadInput if `length` is below 1, not less than the number of layers, or so
  /// large that a path's number exceeds 64 bits.
  PathProfile(const RoutingTrace& profiled, int length);

  int length() const { return length_; }
  int layers() const { return static_cast<int>(layers_.size()); }
  /// Returns the number of different paths that were seen before a layer.
  size_t paths(int layer) const { return layers_[layer].paths; }
  /// Returns the experts that the tokens of a path chose in `layer` >= length(), the most frequent first.
  std::span<const Follower> followers(int layer, std::span<const int32_t> path) const;

  /// Returns each expert's expected number of tokens in `layer` of a batch: the sum over tokens t of P(e | path of t),
  /// where each token counts only for its `top_k` likeliest experts. By the text around Lina's Eq. 1 (missing in
  /// print), an expert's share of the devices is its share of this sum. Terms are rounded to multiples of 2^-36, so
  /// that the sums of ranks that estimate their own tokens are the same, bit for bit, below 2^17 tokens an expert.
  std::vector<double> estimate(const RoutingTrace& trace, int layer, int64_t batch, int top_k = 1) const;
  /// Returns the share of a trace's tokens that chose their likeliest expert in `layer`.
  double guess_accuracy(const RoutingTrace& trace, int layer) const;

  /// Returns the bytes of the profile in a rank's host memory: the paths' numbers and followers.
  int64_t bytes() const;
  /// Writes the profile as CSV with the columns layer, path, expert, share. The path is a list of experts separated by
  /// blanks; it is empty in the rows of a layer's distribution over all tokens.
  void write(const std::string& path) const;

 private:
  using Followers = std::span<const Follower>;
  // A path with its followers; count 0: an empty place of the table.
  struct Path {
    uint64_t number = 0;
    uint32_t first = 0, count = 0;  // range in the layer's `followers`
  };
  // `table` is a hash table with linear probing and at least twice as many places as paths. The paths of a large model
  // do not fit into a cache, so each access counts.
  struct Layer {
    std::vector<Path> table;  // the number of places is a power of two
    size_t paths = 0;
    std::vector<Follower> followers, all;  // of all paths; of the distribution over all tokens
  };
  void count(const RoutingTrace& profiled, int layer);
  static size_t place_of(std::span<const Path> table, uint64_t number);
  Followers find(int layer, uint64_t path) const;
  template <class Body>
  void each_token(const RoutingTrace& trace, int layer, int64_t first, int64_t count, Body body) const;

  int length_ = 1;
  uint64_t experts_ = 1;
  std::vector<Layer> layers_;
};

}  // namespace moe
