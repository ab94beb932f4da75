#pragma once
// What every communicator must do, over factories: an implementation instantiates CommunicatorConformance once more.
// Buffers lie in the device's memory, and streams alone touch them, so that it may be a GPU's.
#include <cstddef>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <tuple>
#include <vector>

#include "moe/comm/communicator.h"
#include "tests/device/on_device.h"

namespace moe {

struct CommunicatorFactory {
  std::string name;
  /// Runs body on each of `ranks` ranks with its world communicator and a device of its own; rethrows what one throws.
  /// A rank missing for `timeout_s` is a RankFailure.
  std::function<void(int ranks, double timeout_s, const std::function<void(Communicator&, Device&)>& body)> run;
  /// How far the moments of two ranks' events may be off each other.
  double clock_error_s = 0;
  /// Sums are in rank order to the last bit; else within this of the largest summand.
  double sum_error = 0;
  int splits = 100;  // in a row: fewer where each takes long
};

/// Parameters: the factory and the number of ranks.
class CommunicatorConformance : public testing::TestWithParam<std::tuple<CommunicatorFactory, int>> {
 public:
  static std::string name(const testing::TestParamInfo<ParamType>& info) {
    return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param)) + "_ranks";
  }

 protected:
  int ranks() const { return std::get<1>(GetParam()); }
  void run(const std::function<void(Communicator&, Device&)>& body, double timeout_s = 60) const {
    factory().run(ranks(), timeout_s, body);
  }
  const CommunicatorFactory& factory() const { return std::get<0>(GetParam()); }
};

inline constexpr int64_t kSizes[] = {0, 1, 13, 4096, 1000003};

/// Return bytes and numbers that tell rank, buffer and index apart, so that any misrouting shows.
std::vector<std::byte> bytes_of_rank(int rank, int buffer, int64_t bytes, int64_t first = 0);
template <class T>
std::vector<T> numbers_of_rank(int rank, int buffer, int64_t elements);

extern template std::vector<float> numbers_of_rank<float>(int, int, int64_t);
extern template std::vector<double> numbers_of_rank<double>(int, int, int64_t);

/// Returns the message of the RankFailure that synchronising throws, or "none".
std::string failure_of(Stream& stream);

}  // namespace moe
