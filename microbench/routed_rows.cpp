// Checks of the maps between tokens and rows by the maps' definitions, and random inputs for the maps.
#include <algorithm>
#include <optional>

#include "microbench/kernels.h"
#include "moe/base/random.h"
#include "moe/tensor/host_copy.h"

namespace moe::microbench {
namespace {

constexpr int64_t kColumns = 256, kMixedColumns = 16, kPairs = 4096;
constexpr int64_t kDrawn =
    999983;  // count of random numbers before they repeat; a prime, so that rows of a tensor differ

std::vector<int64_t> columns_of(const Routing& routing, int64_t width) {
  return measure::evenly_spaced(width, routing.mixes() ? kMixedColumns : kColumns);
}

// Returns the offset, in elements, of a pair's row in the rows; none for a dropped pair.
std::optional<int64_t> place_of(const RoutedRows& routed, int64_t pair) {
  if (routed.routing.row[pair] == Routing::kDropped) return {};
  const auto group = static_cast<int>(routed.routing.group_of(pair / routed.routing.choices));
  return routed.rows.layout.offset(group, routed.routing.expert[pair], routed.routing.row[pair]);
}

double weight_of(const float* by, int64_t pair) { return by == nullptr ? 1 : by[pair]; }

}  // namespace

Tensor random_rows(std::initializer_list<int64_t> shape, DType dtype, MemorySpace& memory) {
  Tensor t(shape, dtype, memory);
  const HostCopy host(t, memory);
  const int64_t drawn = std::min(t.view().elements(), kDrawn);
  auto* numbers = host.view().as<float>();
  for (int64_t i = 0; i < drawn; ++i)
    numbers[i] = static_cast<float>(random_uniform(1, 2, static_cast<uint64_t>(i)) - 0.5);
  for (int64_t i = drawn; i < t.view().elements(); ++i) numbers[i] = numbers[i - drawn];
  host.send();
  return t;
}

RankShape routed_shape(const KernelSizes& sizes, std::string_view gate, int64_t tokens, int64_t width) {
  LayerShape layer{.batch = 1, .seq = tokens, .model_dim = width, .hidden = sizes.hidden, .heads = 1};
  layer.experts = sizes.experts;
  layer.top_k = sizes.top_k;
  layer.gate = gate;
  layer.dtype = sizes.dtype;
  return rank_shape(complete(layer, {}, Rounding::ragged), 0);
}

RowLayout layout_of(const RankShape& rank) {
  const int64_t experts = rank.shape.layer.experts;
  RowLayout::Shape shape{rank.rows, rank.model_dim(), 1, experts, 1, false, {}};
  for (int64_t e = 0; e < experts; ++e) shape.cells.push_back({0, e, static_cast<int>(e)});
  return RowLayout(std::move(shape));
}

measure::WrongElements wrong_rows(const RoutedRows& found, const float* by, TensorView tokens) {
  const int64_t width = tokens.size(1), rows = found.rows.data.elements() / width;
  std::vector<std::vector<int64_t>> pairs(rows);  // pairs of each row
  for (int64_t pair = 0; pair < found.routing.pairs(); ++pair)
    if (const auto place = place_of(found, pair)) pairs[static_cast<size_t>(*place / width)].push_back(pair);
  measure::WrongElements wrong;
  for (int64_t row = 0; row < rows; ++row) {
    const auto& here = pairs[row];
    const measure::SumCheck check("rows", static_cast<int64_t>(here.size()), found.stored, DType::float32);
    for (const int64_t col : columns_of(found.routing, width)) {
      measure::ExactSum sum;
      for (const int64_t pair : here)
        sum.add(weight_of(by, pair), tokens.as<float>()[pair / found.routing.choices * width + col]);
      check.compare(row * width + col, found.rows.data.as<float>()[row * width + col], sum, wrong);
    }
  }
  return wrong;
}

measure::WrongElements wrong_tokens(const RoutedRows& routed, const float* by, TensorView found) {
  const int64_t width = found.size(1), choices = routed.routing.choices;
  const measure::SumCheck check("tokens", choices, routed.stored, DType::float32);
  measure::WrongElements wrong;
  for (int64_t token = 0; token < routed.routing.tokens; ++token)
    for (const int64_t col : columns_of(routed.routing, width)) {
      measure::ExactSum sum;
      for (int64_t pair = token * choices; pair < (token + 1) * choices; ++pair)
        if (const auto place = place_of(routed, pair))
          sum.add(weight_of(by, pair), routed.rows.data.as<float>()[*place + col]);
      check.compare(token * width + col, found.as<float>()[token * width + col], sum, wrong);
    }
  return wrong;
}

measure::WrongElements wrong_dots(const RoutedRows& routed, TensorView tokens, TensorView found) {
  const int64_t width = tokens.size(1);
  const measure::SumCheck check("gradients of pairs", width, DType::float32, DType::float32);
  measure::WrongElements wrong;
  for (const int64_t pair : measure::evenly_spaced(routed.routing.pairs(), kPairs)) {
    const float* token = tokens.as<float>() + pair / routed.routing.choices * width;
    measure::ExactSum sum;
    if (const auto place = place_of(routed, pair))
      for (int64_t col = 0; col < width; ++col) sum.add(token[col], routed.rows.data.as<float>()[*place + col]);
    check.compare(pair, found.as<float>()[pair], sum, wrong);
  }
  return wrong;
}

}  // namespace moe::microbench
