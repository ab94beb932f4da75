#include "moe/layer/experts/fp8_products.h"

#include <algorithm>

namespace moe {
namespace {

// Memory is counted in elements of 4 bytes, the size of a scale.
constexpr int64_t kWord = 4, kAligned = 4;  // words of 16 bytes

int64_t words_of(int64_t numbers) { return (numbers + kWord - 1) / kWord; }
int64_t aligned(int64_t words) { return (words + kAligned - 1) / kAligned * kAligned; }

}  // namespace

Fp8Products::Fp8Products(const PartSetup& setup, int64_t weights, int64_t rows, int64_t columns)
    : math_(setup.math),
      memory_(setup.memory),
      name_(fmt::format("{}rows in fp8", setup.prefix)),
      weights_(weights),
      size_(rows * columns),
      max_scales_(std::max(fp8_scales(rows, columns, true), fp8_scales(columns, rows, true))),
      max_columns_(std::max(rows, columns)),
      numbers_(
          setup.weight(fmt::format("{}experts in fp8", setup.prefix), {words_of(2 * weights * size_)}, DType::float32)),
      scales_(setup.weight(fmt::format("{}scales in fp8", setup.prefix), {2 * weights * max_scales_}, DType::float32)) {
}

void Fp8Products::reserve(int64_t rows) {
  const int64_t words = aligned(words_of(round_up_to_4(rows) * max_columns_)) + fp8_scales(rows, max_columns_, false);
  const auto make = [&](Lifetime phase) {
    return memory_.store(phase).grow_to(name_, words, DType::float32, math_.memory());
  };
  forward_ = backward_ = nullptr;  // released before larger ones are made
  forward_ = make(Lifetime::moe_forward);
  backward_ = make(Lifetime::moe_backward);
}

Fp8Matrix Fp8Products::rounded_weight(int64_t which, bool turned, int64_t rows, int64_t cols) const {
  const int64_t at = which + (turned ? weights_ : 0);
  return {reinterpret_cast<uint8_t*>(numbers_.as<float>()) + at * size_, scales_.as<float>() + at * max_scales_, rows,
          cols, true};
}

void Fp8Products::round_weight(int64_t which, const Matrix& weight) {
  const Fp8Matrix turned = rounded_weight(which, true, weight.cols, weight.rows);
  math_.round_fp8(weight, rounded_weight(which, false, weight.rows, weight.cols), &turned);
}

void Fp8Products::round_rows(const Matrix& rows, Lifetime phase) {
  float* words = (phase == Lifetime::moe_forward ? forward_ : backward_)->view().as<float>();
  rows_ = {reinterpret_cast<uint8_t*>(words), words + aligned(words_of(round_up_to_4(rows.rows) * rows.cols)),
           rows.rows, rows.cols};
  math_.round_fp8(rows, rows_);
}

void Fp8Products::multiply(int64_t which, bool by_transpose, const Matrix& out, Into into) {
  math_.gemm_fp8(rows_, rounded_weight(which, !by_transpose, out.cols, rows_.cols), out, into);
}

}  // namespace moe
