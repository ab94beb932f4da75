// The CPU's heads against those that a GPU composes of products and softmaxes, over shapes drawn at random.
#include "moe/tensor/causal_heads.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "moe/base/random.h"
#include "moe/tensor/tensor.h"
#include "tests/tensor/random_tensor.h"

namespace moe {
namespace {

void expect_near(const Tensor& found, const Tensor& expected, const std::string& what) {
  for (int64_t i = 0; i < expected.view().elements(); ++i)
    ASSERT_NEAR(found.view().as<double>()[i], expected.view().as<double>()[i], 1e-12) << what << ", element " << i;
}

void compare(const HeadsShape& shape) {
  const std::string what =
      fmt::format("L {}, {} heads of {} over {}", shape.seq, shape.heads, shape.dim, shape.kv_heads);
  const int64_t wide = shape.heads * shape.dim, narrow = shape.kv_heads * shape.dim;
  const Tensor q = random_tensor({shape.tokens, wide}, 1), k = random_tensor({shape.tokens, narrow}, 2);
  const Tensor v = random_tensor({shape.tokens, narrow}, 3), dy = random_tensor({shape.tokens, wide}, 4);
  struct Results {
    Tensor out, dq, dk, dv;
  };
  const auto results_of = [&](CausalHeads& heads) {
    Results r{random_tensor({shape.tokens, wide}, 5), random_tensor({shape.tokens, wide}, 6),
              random_tensor({shape.tokens, narrow}, 7), random_tensor({shape.tokens, narrow}, 8)};
    for (int again = 0; again < 2; ++again) {  // nothing is left of a pass before
      heads.forward({q, k, v}, r.out);
      heads.backward({q, k, v}, r.out, dy, {r.dq, r.dk, r.dv});
    }
    return r;
  };
  const Results flash = results_of(*cpu_math().make_heads(shape));
  const Results composed = results_of(*make_composed_heads(cpu_math(), shape));
  expect_near(flash.out, composed.out, what);
  expect_near(flash.dq, composed.dq, what + ", dq");
  expect_near(flash.dk, composed.dk, what + ", dk");
  expect_near(flash.dv, composed.dv, what + ", dv");
}

TEST(CausalHeads, OfTheCpuAreThoseComposed) {
  for (uint64_t draw = 0; draw < 60; ++draw) {
    const auto pick = [&](uint64_t stream, int64_t most) {
      return 1 + static_cast<int64_t>(random_bits(9, stream, draw) % static_cast<uint64_t>(most));
    };
    const int64_t seq = pick(1, draw % 4 == 0 ? 300 : 40), kv_heads = pick(2, 4);
    compare({.tokens = seq * pick(3, 3),
             .seq = seq,
             .heads = kv_heads * pick(4, 3),
             .kv_heads = kv_heads,
             .dim = pick(5, 33),
             .dtype = DType::float64});
    if (testing::Test::HasFailure()) return;
  }
}

TEST(CausalHeads, OfOneTokenPassItsValueOn) {
  compare({.tokens = 5, .seq = 1, .heads = 6, .kv_heads = 2, .dim = 3, .dtype = DType::float64});
}

}  // namespace
}  // namespace moe
