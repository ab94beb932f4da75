#pragma once
// Estimates experts' popularity before a gate has chosen: tokens that chose the same experts in the last layers tend to
// choose the same ones in the next (Lina, section 5.2).
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
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
  size_t paths(int layer) const { return layers_[static_cast<size_t>(layer)].by_path.size(); }
  /// Returns the experts that followed a path before `layer` >= length(), the most frequent first.
  std::span<const Follower> followers(int layer, std::span<const int32_t> path) const;

  /// Returns each expert's expected tokens in `layer` of a batch, before its gate: the sum over tokens t of P(e | path
  /// of t), of each token for its `top_k` likeliest experts alone. Lina's Eq. 1, which is lost in print, makes devices
  /// of it: by its text, an expert's share of the devices is its share of this sum.
  std::vector<double> estimate(const RoutingTrace& trace, int layer, int64_t batch, int top_k = 1) const;
  /// Returns the share of a trace's tokens whose likeliest expert in `layer` is the one they chose.
  double guess_accuracy(const RoutingTrace& trace, int layer) const;

  /// Bytes of the paths' numbers and followers: what a rank keeps in host memory.
  int64_t bytes() const;
  /// Writes the columns layer, path, expert, share; path: experts with blanks between them, empty for the distribution
  /// of a layer over all tokens.
  void write(const std::string& path) const;

 private:
  using Followers = std::vector<Follower>;
  struct Layer {
    std::unordered_map<uint64_t, Followers> by_path;
    Followers all;
  };
  const Followers& find(int layer, uint64_t path) const;
  template <class Body>
  void each_token(const RoutingTrace& trace, int layer, int64_t first, int64_t count, Body body) const;

  int length_ = 1;
  uint64_t experts_ = 1;
  std::vector<Layer> layers_;
};

}  // namespace moe
