#include "moe/formats/safetensors.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "moe/base/check.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

template <class T>
SafeTensor tensor(std::string name, std::string_view type, std::vector<int64_t> shape, const std::vector<T>& values) {
  return {std::move(name), type, std::move(shape), std::as_bytes(std::span(values))};
}

TEST(SafeTensors, HeaderThenElements) {
  const Scratch scratch;
  const std::vector<double> wide{1.5, -2, 3};
  const std::vector<int32_t> whole{7, -1};
  const std::vector<float> none;
  const std::string path = scratch.path("t.safetensors");
  write_safetensors(path, std::vector{tensor("none", "F32", {0, 4}, none), tensor("a.b", "F64", {3, 1}, wide),
                                      tensor("c", "I32", {2}, whole)});
  const std::string file = Scratch::read(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(length % 8, 0U);
  const auto header = nlohmann::json::parse(file.substr(8, length));
  EXPECT_EQ(header.size(), 3U);
  EXPECT_EQ(header["a.b"], nlohmann::json::parse(R"({"dtype": "F64", "shape": [3, 1], "data_offsets": [0, 24]})"));
  EXPECT_EQ(header["c"], nlohmann::json::parse(R"({"dtype": "I32", "shape": [2], "data_offsets": [24, 32]})"));
  ASSERT_EQ(file.size(), 8 + length + 32);
  EXPECT_EQ(std::memcmp(file.data() + 8 + length, wide.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file.data() + 8 + length + 24, whole.data(), 8), 0);
}

TEST(SafeTensors, WhatIsWrongIsNamed) {
  const Scratch scratch;
  const std::vector<double> two{1, 2};
  const auto fails = [&](const std::vector<SafeTensor>& tensors) {
    return error_of<WrongResult>([&] { write_safetensors(scratch.path("t"), tensors); });
  };
  EXPECT_NE(fails({tensor("a", "F64", {3}, two)}).find("a"), std::string::npos);
  EXPECT_NE(fails({tensor("a", "F8", {2}, two)}).find("F8"), std::string::npos);
  EXPECT_NE(fails({tensor("a", "F64", {2}, two), tensor("a", "F64", {2}, two)}).find("two"), std::string::npos);
  EXPECT_NE(fails({tensor("a\"", "F64", {2}, two)}).find("a\""), std::string::npos);
  const std::string nowhere = scratch.path("no/such/folder");
  EXPECT_NE(error_of<BadInput>([&] { write_safetensors(nowhere, {}); }).find(nowhere), std::string::npos);
}

}  // namespace
}  // namespace moe
