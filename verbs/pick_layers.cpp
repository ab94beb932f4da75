#include "verbs/pick_layers.h"

#include <algorithm>
#include <map>
#include <string>

#include "moe/base/check.h"

namespace moe::verbs {
namespace {

// Returns "batch 1", "seq 256", ..., and each two of them: what a pick should have as few times as the ones before it
// allow.
std::vector<std::string> traits_of(const LayerShape& l) {
  const double scale = static_cast<double>(l.hidden) / static_cast<double>(l.model_dim);
  std::vector<std::string> traits{
      fmt::format("batch {}", l.batch),     fmt::format("seq {}", l.seq),
      fmt::format("dim {}", l.model_dim),   fmt::format("scale {:.3f}", scale),
      fmt::format("heads {}", l.heads),     fmt::format("f {}", l.capacity_factor.value_or(0)),
      fmt::format("ffn {}", name_of(l.ffn))};
  const size_t singles = traits.size();
  for (size_t i = 0; i < singles; ++i)
    for (size_t j = i + 1; j < singles; ++j) traits.push_back(traits[i] + ", " + traits[j]);
  return traits;
}

}  // namespace

std::vector<size_t> pick_layers(std::span<const LayerShape> layers, int count) {
  struct Unpicked {
    size_t layer;
    std::vector<int*> uses;  // of its traits, by the picks so far
  };
  std::map<std::string, int> used;
  std::vector<Unpicked> open;
  for (size_t i = 0; i < layers.size(); ++i) {
    open.push_back({i, {}});
    for (const std::string& trait : traits_of(layers[i])) open.back().uses.push_back(&used[trait]);
  }
  std::vector<size_t> picked;
  while (!open.empty() && picked.size() < static_cast<size_t>(count)) {
    const auto repeats = [](const Unpicked& c) {
      int sum = 0;
      for (const int* uses : c.uses) sum += *uses;
      return sum;
    };
    const auto next = std::ranges::min_element(open, {}, repeats);  // the first of the least
    for (int* uses : next->uses) ++*uses;
    picked.push_back(next->layer);
    open.erase(next);
  }
  std::ranges::sort(picked);
  return picked;
}

}  // namespace moe::verbs
