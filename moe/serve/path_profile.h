#pragma once
// Estimates experts' popularity before a gate has chosen: tokens that chose the same experts in the last layers tend to
// choose the same ones in the next (Lina, section 5.2).
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "moe/serve/routing_trace.h"

namespace moe {

/// For each layer, how often each expert followed each path: the experts that a token chose in the `length` layers
/// before. A path that was never seen has the layer's distribution over all tokens.
class PathProfile {
 public:
  struct Follower {
    int32_t expert = 0;
    double share = 0;  // of the tokens on the path
  };

  /// Counts all tokens of a trace. Throws BadInput for a length that is below 1, that leaves no layer, or whose paths
  /// have no number of 64 bits.
  PathProfile(const RoutingTrace& profiled, int length);

  int length() const { return length_; }
  int layers() const { return static_cast<int>(layers_.size()); }
  /// Counts the paths that were seen before a layer.
  size_t paths(int layer) const { return layers_[layer].paths; }
  /// Returns the experts that followed a path before `layer` >= length(), the most frequent first.
  std::span<const Follower> followers(int layer, std::span<const int32_t> path) const;

  /// Returns each expert's expected tokens in `layer` of a batch, before its gate: the sum over tokens t of P(e | path
  /// of t), of each token for its `top_k` likeliest experts alone. Lina's Eq. 1, which is lost in print, makes devices
  /// of it: by its text, an expert's share of the devices is its share of this sum. Terms are multiples of 2^-36, so
  /// that ranks which estimate their own tokens add up to the same sum, bit for bit, below 2^17 tokens an expert.
  std::vector<double> estimate(const RoutingTrace& trace, int layer, int64_t batch, int top_k = 1) const;
  /// Returns the share of a trace's tokens whose likeliest expert in `layer` is the one they chose.
  double guess_accuracy(const RoutingTrace& trace, int layer) const;

  /// Bytes of the paths' numbers and followers: what a rank keeps in host memory.
  int64_t bytes() const;
  /// Writes the columns layer, path, expert, share; path: experts with blanks between them, empty for the distribution
  /// of a layer over all tokens.
  void write(const std::string& path) const;

 private:
  using Followers = std::span<const Follower>;
  // Followers of a path; none: an empty place of a table.
  struct Path {
    uint64_t number = 0;
    uint32_t first = 0, count = 0;  // among the layer's
  };
  // A token's path is looked up in a table that has room for twice as many, at the first free place from its hash on: a
  // large model's paths are nowhere in a cache, so each access counts.
  struct Layer {
    std::vector<Path> table;  // a power of two of places
    size_t paths = 0;
    std::vector<Follower> followers, all;  // of all paths; over all tokens
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
