#pragma once
// What every communicator must do, over factories: an implementation instantiates CommunicatorConformance once more.
#include <cstddef>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <tuple>
#include <vector>

#include "moe/comm/communicator.h"

namespace moe {

struct CommunicatorFactory {
  std::string name;
  /// Runs body on each of `ranks` ranks with its world communicator and a device of its own; rethrows what one throws.
  /// A rank missing for `timeout_s` is a RankFailure.
  std::function<void(int ranks, double timeout_s, const std::function<void(Communicator&, Device&)>& body)> run;
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
    std::get<0>(GetParam()).run(ranks(), timeout_s, body);
  }
};

inline constexpr int64_t kSizes[] = {0, 1, 13, 4096, 1000003};

/// Bytes and numbers that tell rank, buffer and index apart, so that any misrouting shows.
std::vector<std::byte> bytes_of_rank(int rank, int buffer, int64_t bytes, int64_t first = 0);
template <class T>
std::vector<T> numbers_of_rank(int rank, int buffer, int64_t elements);

extern template std::vector<float> numbers_of_rank<float>(int, int, int64_t);
extern template std::vector<double> numbers_of_rank<double>(int, int, int64_t);

/// The message of the RankFailure that synchronising throws, or "none".
std::string failure_of(Stream& stream);

}  // namespace moe
