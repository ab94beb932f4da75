#include "moe/serve/path_profile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/ranges.h>

#include "moe/base/check.h"
#include "moe/base/files.h"

namespace moe {
namespace {

constexpr int kBits = 36;  // fraction bits of an estimate's terms

using Choice = std::pair<uint64_t, int32_t>;  // the path of a token, and the expert that it chose

// Adds the followers of one path: the share of its tokens that chose each expert. `choices` must be sorted.
void add_followers(std::span<const Choice> choices, std::vector<PathProfile::Follower>& followers) {
  const auto first = std::ssize(followers);
  for (size_t begin = 0, end = 0; begin < choices.size(); begin = end) {
    while (end < choices.size() && choices[end].second == choices[begin].second) ++end;
    followers.push_back(
        {choices[begin].second, static_cast<double>(end - begin) / static_cast<double>(choices.size())});
  }
  std::ranges::stable_sort(followers.begin() + first, followers.end(), std::greater(), &PathProfile::Follower::share);
}

}  // namespace

// Calls body(token, number of its path) for tokens of a trace. The number of a path has one digit per layer, in base
// `experts`.
template <class Body>
void PathProfile::each_token(const RoutingTrace& trace, int layer, int64_t first, int64_t count, Body body) const {
  for (int64_t token = first; token < first + count; ++token) {
    uint64_t path = 0;
    for (int before = layer - length_; before < layer; ++before)
      path = path * experts_ + static_cast<uint64_t>(trace.choices[before][token]);
    body(static_cast<size_t>(token), path);
  }
}

PathProfile::PathProfile(const RoutingTrace& profiled, int length)
    : length_(length), experts_(static_cast<uint64_t>(profiled.experts)) {
  require<BadInput>(length >= 1 && length < profiled.layers, "path: found {} layers, expected 1 to {} of {}", length,
                    profiled.layers - 1, profiled.layers);
  require<BadInput>(length * std::log2(static_cast<double>(profiled.experts)) < 63,
                    "path: found {} layers of {} experts, expected fewer than 2^63 paths", length, profiled.experts);
  layers_.resize(profiled.layers);
  for (int layer = 0; layer < profiled.layers; ++layer) count(profiled, layer);
}

void PathProfile::count(const RoutingTrace& profiled, int layer) {
  Layer& own = layers_[layer];
  const std::vector<int32_t>& chosen = profiled.choices[layer];
  std::vector<Choice> choices;
  choices.reserve(chosen.size());
  for (const int32_t expert : chosen) choices.emplace_back(0, expert);
  std::ranges::sort(choices);
  add_followers(choices, own.all);
  if (layer < length_) return;
  each_token(profiled, layer, 0, profiled.tokens(), [&](size_t token, uint64_t path) {
    choices[token] = {path, chosen[token]};
  });
  std::ranges::sort(choices);
  std::vector<Path> paths;
  for (size_t begin = 0, end = 0; begin < choices.size(); begin = end) {
    while (end < choices.size() && choices[end].first == choices[begin].first) ++end;
    const size_t first = own.followers.size();
    add_followers(std::span(choices).subspan(begin, end - begin), own.followers);
    paths.push_back(
        {choices[begin].first, static_cast<uint32_t>(first), static_cast<uint32_t>(own.followers.size() - first)});
  }
  own.paths = paths.size();
  own.table.resize(std::bit_ceil(2 * paths.size() + 1));
  for (const Path& path : paths) own.table[place_of(own.table, path.number)] = path;
}

// Returns the place of a path in the hash table or, if it is missing, the free place for it.
size_t PathProfile::place_of(std::span<const Path> table, uint64_t number) {
  const size_t last = table.size() - 1;
  size_t at = (number * 0x9e3779b97f4a7c15U >> (63 - std::bit_width(last >> 1))) & last;  // Fibonacci hashing (Knuth)
  while (table[at].count > 0 && table[at].number != number) at = (at + 1) & last;
  return at;
}

PathProfile::Followers PathProfile::find(int layer, uint64_t number) const {
  const Layer& own = layers_[layer];
  const Path& found = own.table[place_of(own.table, number)];
  return found.count == 0 ? Followers(own.all) : Followers(own.followers).subspan(found.first, found.count);
}

std::span<const PathProfile::Follower> PathProfile::followers(int layer, std::span<const int32_t> path) const {
  require<BadInput>(layer >= length_ && layer < layers() && path.size() == static_cast<size_t>(length_),
                    "path: found {} experts before layer {}, expected {} before one of layers {} to {}", path.size(),
                    layer, length_, length_, layers() - 1);
  uint64_t number = 0;
  for (const int32_t expert : path) number = number * experts_ + static_cast<uint64_t>(expert);
  return find(layer, number);
}

std::vector<double> PathProfile::estimate(const RoutingTrace& trace, int layer, int64_t batch, int top_k) const {
  std::vector<double> popularity(experts_);
  each_token(trace, layer, batch * trace.batch_tokens, trace.batch_tokens, [&](size_t, uint64_t path) {
    const Followers likely = find(layer, path);
    for (size_t i = 0; i < std::min(likely.size(), static_cast<size_t>(top_k)); ++i)
      popularity[likely[i].expert] += std::ldexp(std::round(std::ldexp(likely[i].share, kBits)), -kBits);
  });
  return popularity;
}

double PathProfile::guess_accuracy(const RoutingTrace& trace, int layer) const {
  int64_t right = 0;
  each_token(trace, layer, 0, trace.tokens(), [&](size_t token, uint64_t path) {
    right += find(layer, path).front().expert == trace.choices[layer][token];
  });
  return static_cast<double>(right) / static_cast<double>(trace.tokens());
}

int64_t PathProfile::bytes() const {
  size_t bytes = 0;
  for (const Layer& layer : layers_)
    bytes += layer.paths * sizeof(uint64_t) + (layer.all.size() + layer.followers.size()) * sizeof(Follower);
  return static_cast<int64_t>(bytes);
}

void PathProfile::write(const std::string& file) const {
  const auto rows = [](std::ostream& out, size_t layer, std::string_view path, Followers followers) {
    for (const Follower& f : followers) out << fmt::format("{},{},{},{:.9g}\n", layer, path, f.expert, f.share);
  };
  write_whole_file(file, "a file for the profile of paths", [&](std::ostream& out) {
    out << "layer,path,expert,share\n";
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      rows(out, layer, "", layers_[layer].all);
      std::vector<uint64_t> numbers;
      for (const Path& path : layers_[layer].table)
        if (path.count > 0) numbers.push_back(path.number);
      std::ranges::sort(numbers);
      for (const uint64_t number : numbers) {
        std::vector<uint64_t> path(length_);
        uint64_t rest = number;
        for (size_t i = path.size(); i-- > 0; rest /= experts_) path[i] = rest % experts_;
        rows(out, layer, fmt::format("{}", fmt::join(path, " ")), find(static_cast<int>(layer), number));
      }
    }
  });
}

}  // namespace moe
