// Copies and sums.
#include <cstring>

#include "moe/base/random.h"
#include "tests/device/device_conformance.h"

namespace moe {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t size, uint64_t seed) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(random_bits(seed, 0, i));
  return bytes;
}

TEST_P(DeviceConformance, MemoryIsWritableToItsEndAndAligned) {
  const auto lane = stream();
  for (const int64_t bytes : {1, 63, 64, 4096, 1'000'001}) {
    const Bytes values = random_bytes(static_cast<size_t>(bytes), 1);
    const OnDevice<std::byte> memory(*device_, *lane, values);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 64, 0u);
    EXPECT_TRUE(memory.read(*lane) == values) << bytes << " bytes";
  }
  EXPECT_EQ(device_->make_memory(0).bytes(), 0);
}

TEST_P(DeviceConformance, MemoryIsHandedOutAgainAndAgain) {
  const auto lane = stream();
  for (int round = 0; round < 300; ++round) {
    const OnDevice<double> values(*device_, *lane, std::vector<double>(1 << 16, round));
    EXPECT_EQ(values.read(*lane).back(), round);
  }
}

// Every alignment of both ends against each other, every size around a vector's, and more copies than a launch takes.
TEST_P(DeviceConformance, CopiesManyBlocksOfAnySizeAndAlignment) {
  constexpr size_t kRoom = 160;
  const auto lane = stream();
  const std::vector<int64_t> sizes{0, 1, 3, 4, 15, 16, 17, 64, 127};
  const std::vector<size_t> shifts{0, 1, 4, 8, 12, 16};
  const size_t blocks = sizes.size() * shifts.size() * shifts.size();
  const Bytes source = random_bytes(blocks * kRoom, 2);
  const OnDevice<std::byte> from(*device_, *lane, source);
  const OnDevice<std::byte> to(*device_, *lane, Bytes(blocks * kRoom));
  Bytes expected(blocks * kRoom);
  Moves moves;
  size_t room = 0;
  for (const int64_t size : sizes)
    for (const size_t here : shifts)
      for (const size_t there : shifts) {
        moves.copies.push_back({to.data() + room + there, from.data() + room + here, size});
        std::memcpy(expected.data() + room + there, source.data() + room + here, static_cast<size_t>(size));
        room += kRoom;
      }
  lane->move(moves);
  EXPECT_TRUE(to.read(*lane) == expected);
}

TEST_P(DeviceConformance, CopiesLargeBlocks) {
  const auto lane = stream();
  const Bytes source = random_bytes(5'000'011, 3);
  const OnDevice<std::byte> from(*device_, *lane, source), to(*device_, source.size());
  const int64_t cut = 1'000'003, all = static_cast<int64_t>(source.size());
  lane->move({.copies = {{to.data(), from.data(), cut}, {to.data() + cut, from.data() + cut, all - cut}}, .sum = {}});
  EXPECT_TRUE(to.read(*lane) == source);
}

template <class T>
void check_sum(Device& device, Stream& lane, int64_t elements, int64_t shift) {
  constexpr int kOperands = 5;
  const auto size = static_cast<size_t>(elements + shift);
  std::vector<OnDevice<T>> operands;
  std::vector<T> expected(size);
  Sum sum{.from = {}, .to = {}, .elements = elements, .dtype = sizeof(T) == 4 ? DType::float32 : DType::float64};
  for (int operand = 0; operand < kOperands; ++operand) {
    std::vector<T> values(size);
    for (size_t i = 0; i < size; ++i)
      values[i] = static_cast<T>(random_uniform(4, static_cast<uint64_t>(operand), i) * 100 - 30);
    for (size_t i = 0; i < size; ++i) expected[i] = operand == 0 ? values[i] : expected[i] + values[i];
    operands.emplace_back(device, lane, values);
    sum.from.push_back(operands.back().data() + shift);
  }
  const OnDevice<T> apart(device, size);
  sum.to = {operands[1].data() + shift, apart.data() + shift};
  lane.move({.copies = {}, .sum = sum});
  const auto begin = expected.begin() + shift;
  for (const auto& result : {operands[1].read(lane), apart.read(lane)})
    EXPECT_TRUE(std::equal(begin, expected.end(), result.begin() + shift)) << elements << " elements from " << shift;
}

TEST_P(DeviceConformance, SumsInOrderIntoSeveralPlacesOfWhichOneMayBeAnOperand) {
  const auto lane = stream();
  for (const int64_t elements : {0, 1, 3, 4, 1025, 300007})
    for (const int64_t shift : {0, 1}) {
      check_sum<float>(*device_, *lane, elements, shift);
      check_sum<double>(*device_, *lane, elements, shift);
    }
}

}  // namespace
}  // namespace moe
