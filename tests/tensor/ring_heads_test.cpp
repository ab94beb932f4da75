// Heads that meet keys and values block by block, on all ranks of a ring one after the other, against heads of whole
// sequences on one rank.
#include "moe/tensor/ring_heads.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/tensor/random_tensor.h"

namespace moe {
namespace {

struct Ring {
  HeadsShape whole;
  int ranks;

  int64_t piece() const { return whole.seq / (int64_t{2} * ranks); }
  /// Calls body(row of the whole, row of the rank) for each of a rank's tokens, by its place in its sequence.
  template <class Body>
  void for_each_token(int rank, Body body) const {
    const int64_t own = 2 * piece();
    for (int64_t row = 0; row < whole.tokens / ranks; ++row) {
      const int64_t place =
          row % own < piece() ? rank * piece() + row % own : (2 * ranks - 1 - rank) * piece() + row % own - piece();
      body(row / own * whole.seq + place, row);
    }
  }
  Tensor of_rank(const Tensor& all, int rank) const {
    const int64_t width = all.view().size(1);
    Tensor own({whole.tokens / ranks, width}, DType::float64);
    for_each_token(rank, [&](int64_t from, int64_t to) {
      std::memcpy(own.view().as<double>() + to * width, all.view().as<double>() + from * width,
                  static_cast<size_t>(width) * sizeof(double));
    });
    return own;
  }
  /// Returns the largest difference between a rank's rows and those of the whole.
  double apart(const Tensor& own, const Tensor& all, int rank) const {
    const int64_t width = all.view().size(1);
    double most = 0;
    for_each_token(rank, [&](int64_t from, int64_t to) {
      for (int64_t j = 0; j < width; ++j)
        most = std::max(most,
                        std::abs(own.view().as<double>()[to * width + j] - all.view().as<double>()[from * width + j]));
    });
    return most;
  }
};

void prove(const HeadsShape& whole, int ranks) {
  SCOPED_TRACE(fmt::format("{} ranks, L {}, {} heads of {} and {} over {}, causal {}", ranks, whole.seq, whole.heads,
                           whole.dim, whole.value_width(), whole.kv_heads, whole.causal));
  const Ring ring{whole, ranks};
  const int64_t values = whole.kv_heads * whole.value_width(), mixed = whole.heads * whole.value_width();
  const Tensor q = random_tensor({whole.tokens, whole.heads * whole.dim}, 1);
  const Tensor k = random_tensor({whole.tokens, whole.kv_heads * whole.dim}, 2);
  const Tensor v = random_tensor({whole.tokens, values}, 3), dy = random_tensor({whole.tokens, mixed}, 4);
  Tensor out({whole.tokens, mixed}, DType::float64), dq({whole.tokens, whole.heads * whole.dim}, DType::float64),
      dk({whole.tokens, whole.kv_heads * whole.dim}, DType::float64), dv({whole.tokens, values}, DType::float64);
  TensorStore store;
  const auto heads = make_composed_heads(cpu_math(), whole, store);
  heads->forward({q, k, v}, out);
  heads->backward({q, k, v}, out, dy, {dq, dk, dv});

  std::vector<Tensor> k_of, v_of, dk_of, dv_of;
  for (int rank = 0; rank < ranks; ++rank) {
    k_of.push_back(ring.of_rank(k, rank));
    v_of.push_back(ring.of_rank(v, rank));
    dk_of.emplace_back(std::initializer_list<int64_t>{whole.tokens / ranks, whole.kv_heads * whole.dim},
                       DType::float64);
    dv_of.emplace_back(std::initializer_list<int64_t>{whole.tokens / ranks, values}, DType::float64);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    HeadsShape shape = whole;
    shape.tokens /= ranks;
    shape.ranks = ranks;
    shape.rank = rank;
    TensorStore kept, backward;
    RingHeads own(cpu_math(), shape, kept, backward);
    const Tensor own_q = ring.of_rank(q, rank), own_dy = ring.of_rank(dy, rank);
    Tensor own_out = random_tensor({shape.tokens, mixed}, 5);
    Tensor own_dq = random_tensor({shape.tokens, whole.heads * whole.dim}, 6);
    for (int again = 0; again < 2; ++again) {  // nothing is left of a pass before
      for (int step = 0; step < ranks; ++step) {
        const int from = (rank - step + ranks) % ranks;
        own.forward(own_q, {k_of[from], v_of[from]}, from, own_out, step == 0);
      }
      EXPECT_LT(ring.apart(own_out, out, rank), 1e-12);
      own.begin_backward(own_out, own_dy);
      for (int step = 0; step < ranks; ++step) {
        const int from = (rank - step + ranks) % ranks;
        Tensor d_k = random_tensor({shape.tokens, whole.kv_heads * whole.dim}, 7);
        Tensor d_v = random_tensor({shape.tokens, values}, 8);
        own.backward(own_q, {k_of[from], v_of[from]}, from, own_dy, {d_k, d_v}, own_dq, step == 0);
        if (again == 0) continue;
        cpu_math().add(d_k, dk_of[from]);
        cpu_math().add(d_v, dv_of[from]);
      }
      EXPECT_LT(ring.apart(own_dq, dq, rank), 1e-12);
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_LT(ring.apart(dk_of[rank], dk, rank), 1e-12);
    EXPECT_LT(ring.apart(dv_of[rank], dv, rank), 1e-12);
  }
}

TEST(RingHeads, BlocksTogetherAreWholeSequences) {
  for (uint64_t draw = 0; draw < 60 && !testing::Test::HasFailure(); ++draw) {
    const auto pick = [&](uint64_t stream, int64_t most) {
      return 1 + static_cast<int64_t>(random_bits(11, stream, draw) % static_cast<uint64_t>(most));
    };
    const int ranks = static_cast<int>(pick(1, 5));
    HeadsShape whole{.seq = 2 * ranks * pick(2, 7), .kv_heads = pick(3, 3), .dim = pick(4, 17)};
    whole.tokens = whole.seq * pick(5, 3);
    whole.heads = whole.kv_heads * pick(6, 3);
    whole.value_dim = draw % 3 == 0 ? pick(7, 9) : 0;
    whole.dtype = DType::float64;
    whole.causal = draw % 4 != 0;
    prove(whole, ranks);
  }
}

// Scores far beyond what an exponential can hold: each block's are seen relative to the largest so far.
TEST(RingHeads, LargeScoresStayFinite) {
  HeadsShape shape{.tokens = 4, .seq = 4, .heads = 1, .kv_heads = 1, .dim = 1, .dtype = DType::float64};
  TensorStore kept, backward;
  RingHeads heads(cpu_math(), shape, kept, backward);
  Tensor q({4, 1}, DType::float64), k({4, 1}, DType::float64), v({4, 1}, DType::float64), out({4, 1}, DType::float64);
  for (int i = 0; i < 4; ++i) {
    q.view().as<double>()[i] = 1000;
    k.view().as<double>()[i] = i;
    v.view().as<double>()[i] = i + 1;
  }
  heads.forward(q, {k, v}, 0, out, true);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out.view().as<double>()[i], i + 1) << "all of the weight is on the last key";
}

TEST(RingHeads, RefuseWindowsAndPartsOfSamples) {
  const HeadsShape whole{.tokens = 4, .seq = 4, .heads = 1, .kv_heads = 1, .dim = 1, .dtype = DType::float64};
  HeadsShape windowed = whole, cut = whole;
  windowed.window = 2;
  cut.parts = 2;
  TensorStore kept, backward;
  EXPECT_THROW(RingHeads(cpu_math(), windowed, kept, backward), WrongResult);
  EXPECT_THROW(RingHeads(cpu_math(), cut, kept, backward), WrongResult);
  EXPECT_NO_THROW(RingHeads(cpu_math(), whole, kept, backward));
}

}  // namespace
}  // namespace moe
