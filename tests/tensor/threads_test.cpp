// What a rank computes is the same to the last bit on one thread, on two and on three.
#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>

#include "moe/base/numbers.h"
#include "moe/device/cpu/cores.h"
#include "moe/device/device.h"
#include "moe/tensor/attention_heads.h"
#include "moe/tensor/cpu/math.h"
#include "moe/tensor/tensor.h"
#include "tests/tensor/random_tensor.h"

namespace moe {
namespace {

constexpr int64_t kRows = 515, kWidth = 301;  // shared out, with a rest

class OnThreads : public testing::TestWithParam<DType> {
 protected:
  Tensor random(uint64_t stream, std::initializer_list<int64_t> shape = {kRows, kWidth}) const {
    const Tensor wide = random_tensor(shape, stream);
    Tensor t(shape, GetParam());
    convert(wide.view().flat(), t.view().flat());
    return t;
  }

  // `compute` makes tensors anew.
  static void expect_alike(const std::function<std::vector<Tensor>()>& compute) {
    const std::vector<Tensor> one = compute();
    for (const int threads : {2, 3}) {
      cpu::set_thread_count(threads);
      const std::vector<Tensor> several = compute();
      cpu::set_thread_count(1);
      for (size_t i = 0; i < one.size(); ++i)
        EXPECT_EQ(
            std::memcmp(one[i].view().data(), several[i].view().data(), static_cast<size_t>(one[i].view().bytes())), 0)
            << "result " << i << " on " << threads << " threads";
    }
  }
};

TEST_P(OnThreads, ElementsAreAlike) {
  expect_alike([&] {
    Tensor x = random(1), y = random(2), d = random(3), d_b = random(4), out = random(5), copy = random(6);
    swiglu(x, y, out);
    swiglu_backward(x, y, d, d, d_b);
    assign(out, copy);
    gelu(out, out);
    gelu_backward(x, y, y);
    add(x, copy);
    scale(copy, 0.3);
    Tensor rounded({kRows, kWidth}, DType::bfloat16);
    convert(copy, rounded);
    std::vector<Tensor> all;
    for (Tensor* t : {&out, &d, &d_b, &y, &copy, &rounded}) all.push_back(std::move(*t));
    return all;
  });
}

TEST_P(OnThreads, RowsAndSumsOverThemAreAlike) {
  for (const bool centred : {true, false})
    expect_alike([&] {
      Tensor x = random(1), gain = random(2, {1, 1, kWidth}), out = random(3), d = random(4);
      Tensor d_gain = random(5, {1, 1, kWidth}), p = random(6);
      const NormInput in{x, gain, centred, 1e-5};
      cpu_math().norm(in, out);
      cpu_math().norm_backward(in, d, d_gain);
      softmax_rows(p);
      std::vector<Tensor> all;
      for (Tensor* t : {&out, &d, &d_gain, &p}) all.push_back(std::move(*t));
      return all;
    });
}

TEST_P(OnThreads, HeadsAreAlike) {
  const HeadsShape shape{.tokens = 2 * 130, .seq = 130, .heads = 6, .kv_heads = 3, .dim = 17, .dtype = GetParam()};
  expect_alike([&] {
    const auto heads = make_flash_heads(shape);
    const Tensor q = random(1, {260, 102}), k = random(2, {260, 51}), v = random(3, {260, 51}),
                 dy = random(4, {260, 102});
    Tensor out = random(5, {260, 102}), dq = random(6, {260, 102}), dk = random(7, {260, 51}),
           dv = random(8, {260, 51});
    heads->forward({q, k, v}, out);
    heads->backward({q, k, v}, out, dy, {dq, dk, dv});
    std::vector<Tensor> all;
    for (Tensor* t : {&out, &dq, &dk, &dv}) all.push_back(std::move(*t));
    return all;
  });
}

TEST_P(OnThreads, ProductsAreAsExact) {
  const Tensor a = random(1), b = random(2, {kWidth, kRows});
  Tensor one({kRows, kRows}, GetParam()), two({kRows, kRows}, GetParam());
  gemm(matrix(a), matrix(b), matrix(one));
  cpu::set_thread_count(2);
  gemm(matrix(a), matrix(b), matrix(two));
  cpu::set_thread_count(1);
  with_number_type(GetParam(), [&]<class T>(T) {
    for (int64_t i = 0; i < kRows * kRows; ++i)
      ASSERT_NEAR(static_cast<double>(widened(one.view().as<T>()[i])),
                  static_cast<double>(widened(two.view().as<T>()[i])), GetParam() == DType::float64 ? 1e-12 : 1e-3);
  });
}

INSTANTIATE_TEST_SUITE_P(Types, OnThreads, testing::Values(DType::float32, DType::float64),
                         [](const auto& row) { return std::string(name_of(row.param)); });

TEST(Threads, AreOfTheDevicesStreams) {
  for (const int threads : {1, 3}) {
    const auto device = make_device(DeviceKind::cpu, 0, threads);
    const auto stream = device->make_stream("compute");
    int found = 0;
    stream->launch([&](void*) { found = cpu::thread_count(); });
    stream->synchronize();
    EXPECT_EQ(found, threads);
    EXPECT_EQ(cpu::thread_count(), 1) << "of the thread that made it";
  }
}

}  // namespace
}  // namespace moe
