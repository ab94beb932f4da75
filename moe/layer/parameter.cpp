#include "moe/layer/parameter.h"

#include <cmath>
#include <cstring>

#include "moe/base/random.h"
#include "moe/tensor/cpu/math.h"
#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"

namespace moe {
namespace {

constexpr int64_t kBytesPerNormal = 64;  // bytes that a core moves in the time of drawing one normal number

// Fills each row by its token's number, number_of(row).
template <class NumberOf>
void fill_rows(TensorView rows, uint64_t seed, uint64_t stream, NumberOf number_of) {
  with_element(rows.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = rows.size(1);
    T* out = rows.as<T>();
    for (int64_t row = 0; row < rows.size(0); ++row, out += width) {
      const auto first = static_cast<uint64_t>(number_of(row) * width);
      for (int64_t i = 0; i < width; ++i)
        out[i] = static_cast<T>(random_normal(seed, stream, first + static_cast<uint64_t>(i)));
    }
  });
}

void fill_rows(TensorView rows, ShardRange tokens, const LayerSeed& seed, std::string_view name) {
  require_equal(rows.size(0), tokens.count, "tokens to fill");
  fill_rows(rows, seed.seed, random_stream_id(name, seed.layer | seed.micro_batch << 32),
            [&](int64_t row) { return tokens.first + row; });
}

template <class T>
void add_skew(TensorView rows, const LayerSeed& seed) {
  const uint64_t stream = random_stream_id("input skew", seed.layer);
  const int64_t width = rows.size(1);
  T* out = rows.as<T>();
  for (int64_t j = 0; j < width; ++j) {
    const auto common = static_cast<T>(seed.skew * random_normal(seed.seed, stream, static_cast<uint64_t>(j)));
    for (int64_t i = 0; i < rows.size(0); ++i) out[i * width + j] += common;
  }
}

template <class T>
void fill_block(const std::array<ShardRange, 3>& axes, T* out, double scale, uint64_t seed, uint64_t stream) {
  const auto& [a, b, c] = axes;
  parallel_for(a.count * b.count, c.count * kBytesPerNormal, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = ((a.first + row / b.count) * b.total + b.first + row % b.count) * c.total + c.first;
      for (int64_t k = 0; k < c.count; ++k)
        out[row * c.count + k] = static_cast<T>(scale * random_normal(seed, stream, static_cast<uint64_t>(first + k)));
    }
  });
}

}  // namespace

void fill_weight(const Parameter& weight, int64_t fan_in, const LayerSeed& seed, MemorySpace& memory) {
  const auto& [a, b, c] = weight.axes;
  require_equal(weight.value.elements(), a.count * b.count * c.count, "elements of " + weight.name);
  const HostCopy host(weight.value, memory);
  with_element(host.view().dtype(), [&](auto zero) {
    fill_block(weight.axes, host.view().as<decltype(zero)>(), 1 / std::sqrt(static_cast<double>(fan_in)), seed.seed,
               random_stream_id(weight.name, seed.layer));
  });
  host.send();
}

void fill_input(TensorView rows, ShardRange tokens, const LayerSeed& seed, MemorySpace& memory) {
  const HostCopy host(rows, memory);
  fill_rows(host.view(), tokens, seed, "input");
  if (seed.skew != 0)
    with_element(host.view().dtype(), [&](auto zero) { add_skew<decltype(zero)>(host.view(), seed); });
  host.send();
}

void fill_output_gradient(TensorView rows, ShardRange tokens, const LayerSeed& seed, MemorySpace& memory) {
  const HostCopy host(rows, memory);
  fill_rows(host.view(), tokens, seed, "output gradient");
  host.send();
}

void fill_gate_noise(TensorView rows, ShardRange tokens, const LayerCase& shape, const LayerSeed& seed,
                     MemorySpace& memory) {
  require_equal(rows.size(0), tokens.count, "tokens to fill");
  const HostCopy host(rows, memory);
  const int64_t before = (static_cast<int64_t>(seed.micro_batch) - shape.part) * tokens.total;  // in whole samples
  if (seed.noisy)
    fill_rows(host.view(), seed.seed, random_stream_id("gate noise", seed.layer | seed.step << 32),
              [&](int64_t row) { return before + sample_order_index(shape, tokens.first + row); });
  else
    std::memset(host.view().data(), 0, static_cast<size_t>(host.view().elements() * bytes_of(host.view().dtype())));
  host.send();
}

}  // namespace moe
