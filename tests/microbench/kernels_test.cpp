// The layer's own kernels as `microbench --kernels` checks them: right as they are, and found out when they aren't.
#include "microbench/kernels.h"

#include <gtest/gtest.h>
#include <set>

#include "microbench/kernel_bench.h"
#include "moe/base/random.h"

namespace moe::microbench {
namespace {

KernelSizes small_sizes() {
  return {.tokens = 96,
          .experts = 4,
          .mixed_tokens = 24,
          .model_dim = 20,
          .hidden = 28,
          .expert_rows = 10,
          .order_widths = {20, 33}};
}

void for_each_kernel(const std::function<void(const measure::Kernel&)>& body) {
  for (const auto& kernels : {order_kernels, expert_kernels, gate_kernels})
    kernels(small_sizes(), [&](std::span<const measure::Kernel> group) {
      for (const measure::Kernel& kernel : group) body(kernel);
    });
}

TEST(Kernels, AreRightEachUnderANameOfItsOwn) {
  std::set<std::string> keys, bounds;
  for_each_kernel([&](const measure::Kernel& kernel) {
    kernel.run();
    const measure::WrongElements wrong = kernel.check();
    EXPECT_EQ(wrong.count, 0) << kernel.key() << ": " << wrong.first;
    EXPECT_TRUE(keys.insert(kernel.key()).second) << kernel.key() << " twice";
    bounds.insert(kernel.bound.kernels.begin(), kernel.bound.kernels.end());
    EXPECT_FALSE(kernel.written.empty()) << kernel.key();
  });
  EXPECT_GE(keys.size(), 40U);
  for (const std::string& bound : bounds) EXPECT_TRUE(keys.contains(bound)) << bound;
}

// Whatever of a result is off, and in whatever way.
TEST(Kernels, AWrongResultIsFoundOut) {
  const std::pair<const char*, float (*)(float, int64_t)> faults[] = {
      {"zeros", [](float, int64_t) { return 0.0F; }},
      {"a hundredth more", [](float v, int64_t) { return v * 1.01F; }},
      {"no numbers", [](float, int64_t) { return std::nanf(""); }},
      {"random", [](float, int64_t i) { return static_cast<float>(random_uniform(5, 6, static_cast<uint64_t>(i))); }}};
  int found = 0;
  for_each_kernel([&](const measure::Kernel& kernel) {
    kernel.run();
    for (const TensorView& written : kernel.written) {
      auto* data = written.as<float>();
      const std::vector<float> right(data, data + written.elements());
      for (const auto& [name, fault] : faults) {
        for (int64_t i = 0; i < written.elements(); ++i) data[i] = fault(right[i], i);
        EXPECT_GT(kernel.check().count, 0) << kernel.key() << ": " << name;
        ++found;
      }
      std::copy(right.begin(), right.end(), data);
    }
    EXPECT_EQ(kernel.check().count, 0) << kernel.key() << ": as it was";
  });
  EXPECT_GT(found, 200);
}

TEST(Kernels, AWrongOneEndsTheVerbWithThree) {
  const measure::Kernel kernel{.name = "sum", .width = 8};
  const CaseRecord right = measure::record_of(kernel, {}, {{2e-3, 1e-3}}, 0),
                   wrong = measure::record_of(kernel, {1, "off"}, {}, 0);
  EXPECT_EQ(report_kernels(std::vector{right}, "records", true), 0);
  for (const bool json : {true, false})  // after all of them are printed
    EXPECT_THROW(report_kernels(std::vector{right, wrong}, "records", json), WrongResult);
}

}  // namespace
}  // namespace moe::microbench
