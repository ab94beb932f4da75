// Kernels that round matrices to FP8 numbers with a scale per block, and that convert them back.
#include "moe/tensor/cuda/kernels.h"
#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {
namespace {

constexpr int kBlock = static_cast<int>(kFp8Block);
constexpr int kNumbersPerThread = 16;                       // numbers of a row per thread: 16 bytes of FP8
constexpr int kThreadsPerRow = kBlock / kNumbersPerThread;  // threads per row of a block
constexpr int kRowsPerThread = 4;  // rows of a tile per thread: a 32-bit word of FP8 per column
static_assert(kBlock / kRowsPerThread * kThreadsPerRow == kThreads, "a block of threads has a tile");

// The scale of a block (fp8_scale()), and its inverse, which multiplies numbers before they are rounded.
template <class A>
struct BlockScale {
  float scale;
  A inverse;
};

// Returns the bits of a number's magnitude. As integers they have the same order as the magnitudes; NaN is the largest.
__device__ inline uint32_t size_bits(float v) { return __builtin_bit_cast(uint32_t, v) & 0x7fffffffU; }
__device__ inline uint64_t size_bits(double v) { return __builtin_bit_cast(uint64_t, v) & ~(uint64_t{1} << 63); }

// Returns the scale of a block whose largest magnitude has the bits `most`: the least power of two, at least 2^-100, by
// which the magnitude must be divided to be at most 448 = 1.75 * 2^8. It computes on the exponent and fraction bits.
__device__ inline BlockScale<float> reach_of(uint32_t most) {
  if (most >= 0x7f800000U) return {NAN, NAN};
  int power = static_cast<int>(most >> 23) - 127 - 8 + ((most & 0x7fffffU) > 0x600000U ? 1 : 0);
  power = power < -100 ? -100 : power;
  return {__builtin_bit_cast(float, static_cast<uint32_t>(power + 127) << 23),
          __builtin_bit_cast(float, static_cast<uint32_t>(127 - power) << 23)};
}
__device__ inline BlockScale<double> reach_of(uint64_t most) {
  if (most >= uint64_t{0x7ff} << 52) return {NAN, NAN};
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1, kThreeQuarters = uint64_t{3} << 50;
  int power = static_cast<int>(most >> 52) - 1023 - 8 + ((most & kFraction) > kThreeQuarters ? 1 : 0);
  power = power < -100 ? -100 : power;
  if (power > 127) return {INFINITY, 0};  // too large for float32
  return {__builtin_bit_cast(float, static_cast<uint32_t>(power + 127) << 23),
          __builtin_bit_cast(double, static_cast<uint64_t>(1023 - power) << 52)};
}

// A thread's numbers of one row. `Whole`: the matrix consists of whole blocks, and rows are aligned to 16 bytes.
template <class T, bool Whole>
struct Numbers {
  using Bits = decltype(size_bits(Accumulator<T>()));
  static constexpr int kPacks = kNumbersPerThread / kPack<T>;
  PackBits<T, kPack<T>> packs[kPacks];

  __device__ void read(const T* row, int64_t first, int64_t cols) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      Pack<T, kPack<T>> pack;
      if constexpr (Whole) {
        pack = load<kPack<T>>(row + first + p * kPack<T>);
      } else {
        for (int j = 0; j < kPack<T>; ++j) {
          const int64_t column = first + p * kPack<T> + j;
          pack.at[j] = column < cols ? row[column] : rounded<T>(0.0F);
        }
      }
      packs[p] = to_pack_bits<T, kPack<T>>(pack);
    }
  }
  __device__ void clear() {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) packs[p] = {};
  }
  __device__ Bits most() const {
    Bits largest = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const auto pack = from_pack_bits<T, kPack<T>>(packs[p]);
#pragma unroll
      for (int j = 0; j < kPack<T>; ++j) largest = Maximum()(largest, size_bits(value_of(pack.at[j])));
    }
    return largest;
  }
  // Returns the numbers, multiplied by `by` and rounded to e4m3, four per word.
  __device__ Words times(Accumulator<T> by) const {
    Words out = {};
#pragma unroll
    for (int n = 0; n < kNumbersPerThread; n += 2) {
      const auto pack = from_pack_bits<T, kPack<T>>(packs[n / kPack<T>]);
      const uint32_t two = to_fp8_bits(value_of(pack.at[n % kPack<T>]) * by, value_of(pack.at[n % kPack<T> + 1]) * by);
      out.at[n / 4] |= two << (n % 4 * 8);
    }
    return out;
  }
};

// Writes a thread's rounded numbers to `row`, from column `first` on.
template <bool Whole>
__device__ void write(const Words& numbers, uint8_t* row, int64_t first, int64_t cols) {
  if constexpr (Whole) {
    *reinterpret_cast<Words*>(row + first) = numbers;
  } else {
    for (int n = 0; n < kNumbersPerThread; ++n)
      if (first + n < cols) row[first + n] = static_cast<uint8_t>(numbers.at[n / 4] >> (n % 4 * 8));
  }
}

// Rounds a matrix without tiles. kThreadsPerRow threads handle one block.
template <class T, bool Whole>
__global__ void __launch_bounds__(kThreads) rows_kernel(const T* from, int64_t stride, Fp8Matrix to) {
  const int64_t blocks = (to.cols + kBlock - 1) / kBlock, index = thread_index() / kThreadsPerRow;
  const bool there = index < to.rows * blocks;
  const int64_t row = index / blocks, block = index - row * blocks;
  const int64_t first = block * kBlock + static_cast<int64_t>(threadIdx.x) % kThreadsPerRow * kNumbersPerThread;
  Numbers<T, Whole> numbers;
  numbers.clear();
  if (there) numbers.read(from + row * stride, first, to.cols);
  auto most = numbers.most();
  for (int by = kThreadsPerRow / 2; by > 0; by /= 2) most = Maximum()(most, __shfl_xor_sync(kAllLanes, most, by));
  if (!there) return;
  const auto reach = reach_of(most);
  if (first == block * kBlock) to.scales[block * to.scale_stride + row] = reach.scale;
  write<Whole>(numbers.times(reach.inverse), to.data + row * to.cols, first, to.cols);
}

// Rounds a matrix with tiles. A block of threads handles a tile, and writes it to `to` and, if `turned` has data, also
// transposed to `turned`, by way of shared memory. There, a word has a thread's four numbers of one column. The words
// of a column are permuted by the column's group of 16, so that neither writes nor reads have bank conflicts.
template <class T, bool Whole>
__global__ void __launch_bounds__(kThreads)
    tiles_kernel(const T* from, int64_t stride, Fp8Matrix to, Fp8Matrix turned) {
  constexpr int kWords = kBlock / 4;
  alignas(16) __shared__ uint32_t columns[kBlock * kWords];
  const int64_t across = (to.cols + kBlock - 1) / kBlock, index = blockIdx.x;
  const int64_t i = index / across, j = index - i * across;
  const int group = static_cast<int>(threadIdx.x) % kThreadsPerRow,
            quad = static_cast<int>(threadIdx.x) / kThreadsPerRow;
  const int64_t first = j * kBlock + group * kNumbersPerThread, top = i * kBlock + quad * kRowsPerThread;
  Numbers<T, Whole> numbers[kRowsPerThread];
  typename Numbers<T, Whole>::Bits most[1] = {};
#pragma unroll
  for (int r = 0; r < kRowsPerThread; ++r) {
    numbers[r].clear();
    if (Whole || top + r < to.rows) numbers[r].read(from + (top + r) * stride, first, to.cols);
    most[0] = Maximum()(most[0], numbers[r].most());
  }
  block_reduce(most, Maximum());
  const auto reach = reach_of(most[0]);
  if (threadIdx.x == 0) {
    to.scales[i * to.scale_stride + j] = reach.scale;
    if (turned.data != nullptr) turned.scales[j * turned.scale_stride + i] = reach.scale;
  }
  Words rows[kRowsPerThread];
#pragma unroll
  for (int r = 0; r < kRowsPerThread; ++r) {
    rows[r] = numbers[r].times(reach.inverse);
    if (Whole || top + r < to.rows) write<Whole>(rows[r], to.data + (top + r) * to.cols, first, to.cols);
  }
  if (turned.data == nullptr) return;
#pragma unroll
  for (int n = 0; n < kNumbersPerThread; ++n) {
    uint32_t word = 0;
#pragma unroll
    for (int r = 0; r < kRowsPerThread; ++r) word |= (rows[r].at[n / 4] >> (n % 4 * 8) & 0xff) << (r * 8);
    columns[(group * kNumbersPerThread + n) * kWords + (quad ^ group * kRowsPerThread)] = word;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRowsPerThread; ++r) {
    const int column = quad + r * (kBlock / kRowsPerThread);
    const int64_t row = j * kBlock + column;
    const int at = column * kWords + (group * kRowsPerThread ^ column / kNumbersPerThread * kRowsPerThread);
    const Words words = *reinterpret_cast<const Words*>(columns + at);
    if (Whole || row < turned.rows)
      write<Whole>(words, turned.data + row * turned.cols, i * kBlock + group * kNumbersPerThread, turned.cols);
  }
}

template <class T>
__global__ void widen_kernel(Fp8Matrix m, T* out) {
  const int64_t index = thread_index();
  if (index >= m.rows * m.cols) return;
  const int64_t row = index / m.cols, block = (index - row * m.cols) / kBlock;
  const float scale = m.scales[m.tiles ? row / kBlock * m.scale_stride + block : block * m.scale_stride + row];
  out[index] =
      rounded<T>(static_cast<Accumulator<T>>(from_fp8_bits(m.data[index])) * static_cast<Accumulator<T>>(scale));
}

// Calls body(std::bool_constant<Whole>), where Whole is as in Numbers.
template <class Body>
void with_whole(const void* from, int64_t stride, int64_t element, const Fp8Matrix& to, Body body) {
  const bool blocks = to.cols % kBlock == 0 && (!to.tiles || to.rows % kBlock == 0);
  if (blocks && stride * element % 16 == 0 && aligned(from))
    body(std::true_type());
  else
    body(std::false_type());
}

}  // namespace

void round_fp8(Work work, const void* from, int64_t stride, const Fp8Matrix& to, const Fp8Matrix& turned) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* data = static_cast<const T*>(from);
    const int64_t across = fp8_blocks(to.cols);
    with_whole(from, stride, sizeof(T), to, [&](auto whole) {
      if (to.tiles)
        launch(tiles_kernel<T, whole()>, {fp8_blocks(to.rows) * across, kThreads}, work.stream, data, stride, to,
               turned);
      else
        launch(rows_kernel<T, whole()>, threads_for(to.rows * across * kThreadsPerRow), work.stream, data, stride, to);
    });
  });
}

void widen_fp8(Work work, const Fp8Matrix& m, void* out) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(widen_kernel<T>, threads_for(m.rows * m.cols), work.stream, m, static_cast<T*>(out));
  });
}

}  // namespace moe::cuda
