#include "moe/base/random.h"

#include <cmath>
#include <numbers>

namespace moe {
namespace {

// The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA'14).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

}  // namespace

uint64_t random_stream_id(std::string_view name, uint64_t layer) {
  uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix(hash + kGolden * (layer + 1));
}

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  return mix(mix(mix(seed + kGolden) ^ stream) + kGolden * (index + 1));
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1.0p-53;
}

double random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const double u = 1.0 - random_uniform(seed, stream, 2 * index);  // in (0, 1]: the logarithm is finite
  const double v = random_uniform(seed, stream, 2 * index + 1);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace moe
