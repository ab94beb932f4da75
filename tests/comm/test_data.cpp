#include "moe/base/check.h"
#include "moe/base/random.h"
#include "tests/comm/communicator_conformance.h"

namespace moe {
namespace {

uint64_t stream_of_buffer(int rank, int buffer) { return static_cast<uint64_t>(rank) * 1000 + uint64_t(buffer); }

}  // namespace

std::vector<std::byte> bytes_of_rank(int rank, int buffer, int64_t bytes, int64_t first) {
  std::vector<std::byte> data(bytes);
  uint64_t word = 0;
  for (int64_t i = 0; i < bytes; ++i) {
    const auto at = static_cast<uint64_t>(first + i);
    if (i == 0 || at % 8 == 0) word = random_bits(1, stream_of_buffer(rank, buffer), at / 8);
    data[i] = static_cast<std::byte>(word >> (at % 8 * 8));
  }
  return data;
}

// Fractions that don't add up exactly, so that the order of a sum shows in its last bits.
template <class T>
std::vector<T> numbers_of_rank(int rank, int buffer, int64_t elements) {
  std::vector<T> data(elements);
  for (int64_t i = 0; i < elements; ++i)
    data[i] = static_cast<T>(random_uniform(2, stream_of_buffer(rank, buffer), static_cast<uint64_t>(i)) * 100 - 30);
  return data;
}

template std::vector<float> numbers_of_rank<float>(int, int, int64_t);
template std::vector<double> numbers_of_rank<double>(int, int, int64_t);

std::string failure_of(Stream& stream) {
  try {
    stream.synchronize();
  } catch (const RankFailure& error) {
    return error.what();
  }
  return "none";
}

}  // namespace moe
