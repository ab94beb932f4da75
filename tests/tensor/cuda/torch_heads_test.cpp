// LibTorch's attention, of every type that GPUs have it in, against products and softmaxes of the CPU in float64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/tensor/attention_heads.h"
#include "tests/layer/cuda/device_values.h"

namespace moe {
namespace {

class TorchHeadsTest : public testing::TestWithParam<DType> {
 protected:
  // Skips with a reason where LibTorch has no CUDA half.
  void SetUp() override {
    try {
      if (test_gpu()) open_torch_cuda();
    } catch (const NoHardware& e) {
      GTEST_SKIP() << e.what();
    }
  }
};

HeadsShape drawn(uint64_t draw, DType dtype) {
  const auto pick = [&](uint64_t stream, std::initializer_list<int64_t> of) {
    return of.begin()[random_bits(31, stream, draw) % of.size()];
  };
  const int64_t seq = pick(1, {2, 7, 64, 200, 513}), kv_heads = pick(2, {1, 2, 3});
  return {.tokens = seq * pick(3, {1, 2, 3}),
          .seq = seq,
          .heads = kv_heads * pick(4, {1, 2, 4}),
          .kv_heads = kv_heads,
          .dim = pick(5, {5, 16, 64, 128}),
          .dtype = dtype,
          .causal = draw % 3 != 0};
}

TEST_P(TorchHeadsTest, AreThoseComposedOnTheCpu) {
  const auto device = make_test_device();
  const auto stream = device->make_stream("attention");
  const auto memory = make_test_memory();
  for (uint64_t draw = 0; draw < 40 && !HasFatalFailure(); ++draw) {
    HeadsShape shape = drawn(draw, GetParam());
    SCOPED_TRACE(fmt::format("L {} of {}, {} heads of {} over {}, causal {}", shape.seq, shape.tokens, shape.heads,
                             shape.dim, shape.kv_heads, shape.causal));
    const int64_t wide = shape.heads * shape.dim, narrow = shape.kv_heads * shape.dim;
    const auto pair = [&](int64_t width, uint64_t number) {
      return Pair({shape.tokens, width}, GetParam(), *memory, number);
    };
    Pair q = pair(wide, 1), k = pair(narrow, 2), v = pair(narrow, 3), dy = pair(wide, 4), out = pair(wide, 5);
    Pair dq = pair(wide, 6), dk = pair(narrow, 7), dv = pair(narrow, 8);
    finish_test_device();
    void* native = nullptr;
    std::optional<TorchGpu> gpu;
    if (test_gpu()) gpu = TorchGpu{*test_gpu(), [&native] { return native; }};
    const auto heads = make_torch_heads(shape, gpu);
    stream->launch([&](void* handle) {
      native = handle;
      heads->forward({q.device, k.device, v.device}, out.device);
      heads->backward({q.device, k.device, v.device}, out.device, dy.device, {dq.device, dk.device, dv.device});
    });
    stream->synchronize();
    shape.dtype = DType::float64;
    TensorStore kept;
    const auto expected = make_composed_heads(cpu_math(), shape, kept);
    expected->forward({q.reference, k.reference, v.reference}, out.reference);
    expected->backward({q.reference, k.reference, v.reference}, out.reference, dy.reference,
                       {dq.reference, dk.reference, dv.reference});
    expect_near(out, "out", 4), expect_near(dq, "dq", 8), expect_near(dk, "dk", 8), expect_near(dv, "dv", 8);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, TorchHeadsTest, testing::Values(DType::float32, DType::bfloat16, DType::float16),
                         [](const auto& row) { return std::string(name_of(row.param)); });

}  // namespace
}  // namespace moe
