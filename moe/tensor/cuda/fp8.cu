// Kernels that round matrices to FP8 numbers and their blocks' scales, and back.
#include "moe/tensor/cuda/kernels.h"
#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {
namespace {

constexpr int kBlock = static_cast<int>(kFp8Block);
constexpr int kHeld = kBlock / kWarpSize;                              // numbers of a block's row that a lane holds
constexpr int kWarps = kThreads / kWarpSize, kRows = kBlock / kWarps;  // of a tile, that a warp reads

// Returns a block's scale (fp8_scale) by its largest size.
template <class A>
__device__ float scale_of(A most) {
  if (!(most < A(INFINITY))) return NAN;
  int exponent = 0;
  const A fraction = std::frexp(most, &exponent);
  const int power = most > 0 ? exponent - 9 + (fraction > A(0.875) ? 1 : 0) : -100;
  return std::ldexp(1.0F, power < -100 ? -100 : power);
}

__device__ inline int64_t tile_stride_of(int64_t cols) { return ((cols + kBlock - 1) / kBlock + 3) / 4 * 4; }

template <class A>
__device__ A size_of(A v) {
  const A size = v < 0 ? -v : v;
  return size < A(INFINITY) ? size : A(INFINITY);  // what is no number too
}

// Holds a lane's numbers of one row of a block: kHeld neighbours where they are read at once (N), else every 32nd.
template <class T, int N>
struct BlockRow {
  static_assert(N == 1 || N == kHeld);
  T at[kHeld];

  static __device__ int column(int n) { return N == 1 ? lane_index() + n * kWarpSize : lane_index() * kHeld + n; }
  __device__ void read(const T* row, int64_t first, int64_t cols) {
    if constexpr (N == kHeld) {
      const auto whole = *reinterpret_cast<const Pack<T, sizeof(T) == 8 ? 2 : N>*>(row + first + column(0));
      for (int n = 0; n < (sizeof(T) == 8 ? 2 : N); ++n) at[n] = whole.at[n];
      if constexpr (sizeof(T) == 8) at[2] = row[first + column(2)], at[3] = row[first + column(3)];
    } else {
      for (int n = 0; n < kHeld; ++n) at[n] = first + column(n) < cols ? row[first + column(n)] : rounded<T>(0.0F);
    }
  }
  __device__ Sums<T> most() const {
    Sums<T> largest = 0;
    for (int n = 0; n < kHeld; ++n) largest = Larger()(largest, size_of(value_of(at[n])));
    return largest;
  }
  __device__ Pack<uint8_t, kHeld> times(Sums<T> by) const {
    Pack<uint8_t, kHeld> out;
    for (int n = 0; n < kHeld; ++n) out.at[n] = to_fp8_bits(value_of(at[n]) * by);
    return out;
  }
  static __device__ void write(const Pack<uint8_t, kHeld>& numbers, uint8_t* row, int64_t first, int64_t cols) {
    if constexpr (N == kHeld) {
      store(numbers, row + first + column(0));
    } else {
      for (int n = 0; n < kHeld; ++n)
        if (first + column(n) < cols) row[first + column(n)] = numbers.at[n];
    }
  }
};

// A warp has a block of one row.
template <class T, int N>
__global__ void rows_kernel(const T* from, int64_t stride, Fp8Matrix to) {
  const int64_t blocks = (to.cols + kBlock - 1) / kBlock, index = warp_index();
  if (index >= to.rows * blocks) return;
  const int64_t row = index / blocks, block = index - row * blocks;
  BlockRow<T, N> numbers;
  numbers.read(from + row * stride, block * kBlock, to.cols);
  const float scale = scale_of(warp_max(numbers.most()));
  if (lane_index() == 0) to.scales[block * to.rows + row] = scale;
  numbers.write(numbers.times(1 / static_cast<Sums<T>>(scale)), to.data + row * to.cols, block * kBlock, to.cols);
}

// A block has a tile, which it writes as it stands, and turned by way of shared memory.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    tiles_kernel(const T* from, int64_t stride, Fp8Matrix to, Fp8Matrix turned) {
  __shared__ uint8_t columns[kBlock][kBlock + 4];
  const int64_t across = (to.cols + kBlock - 1) / kBlock, index = blockIdx.x;
  const int64_t i = index / across, j = index - i * across;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  BlockRow<T, N> held[kRows];
  Sums<T> most[1] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = i * kBlock + warp + r * kWarps;
    for (int n = 0; n < kHeld; ++n) held[r].at[n] = rounded<T>(0.0F);
    if (row < to.rows) held[r].read(from + row * stride, j * kBlock, to.cols);
    most[0] = Larger()(most[0], held[r].most());
  }
  block_reduce(most, Larger());
  const float scale = scale_of(most[0]);
  const Sums<T> inverse = 1 / static_cast<Sums<T>>(scale);
  if (threadIdx.x == 0) {
    to.scales[i * tile_stride_of(to.cols) + j] = scale;
    if (turned.data != nullptr) turned.scales[j * tile_stride_of(turned.cols) + i] = scale;
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int in_tile = warp + r * kWarps;
    const int64_t row = i * kBlock + in_tile;
    const auto numbers = held[r].times(inverse);
    if (row < to.rows) held[r].write(numbers, to.data + row * to.cols, j * kBlock, to.cols);
    for (int n = 0; n < kHeld; ++n) columns[BlockRow<T, N>::column(n)][in_tile] = numbers.at[n];
  }
  if (turned.data == nullptr) return;
  __syncthreads();
  for (int r = 0; r < kRows; ++r) {
    const int column = warp + r * kWarps;
    const int64_t row = j * kBlock + column;
    Pack<uint8_t, kHeld> numbers;
    for (int n = 0; n < kHeld; ++n) numbers.at[n] = columns[column][BlockRow<T, N>::column(n)];
    if (row < turned.rows) BlockRow<T, N>::write(numbers, turned.data + row * turned.cols, i * kBlock, turned.cols);
  }
}

template <class T>
__global__ void widen_kernel(Fp8Matrix m, T* out) {
  const int64_t index = thread_index();
  if (index >= m.rows * m.cols) return;
  const int64_t row = index / m.cols, block = (index - row * m.cols) / kBlock;
  const float scale = m.scales[m.tiles ? row / kBlock * tile_stride_of(m.cols) + block : block * m.rows + row];
  out[index] = rounded<T>(static_cast<Sums<T>>(from_fp8_bits(m.data[index])) * static_cast<Sums<T>>(scale));
}

// Calls body(std::integral_constant<int, N>) with the numbers of a row that a lane may read at once.
template <class Body>
void with_held(const void* from, int64_t stride, const Fp8Matrix& to, Body body) {
  if (to.cols % kBlock == 0 && (!to.tiles || to.rows % kBlock == 0) && stride % kHeld == 0 && aligned(from))
    body(std::integral_constant<int, kHeld>{});
  else
    body(std::integral_constant<int, 1>{});
}

}  // namespace

void round_fp8(Work work, const void* from, int64_t stride, const Fp8Matrix& to, const Fp8Matrix& turned) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* data = static_cast<const T*>(from);
    const int64_t across = fp8_blocks(to.cols);
    with_held(from, stride, to, [&](auto n) {
      if (to.tiles)
        launch(tiles_kernel<T, n()>, {fp8_blocks(to.rows) * across, kThreads}, work.stream, data, stride, to, turned);
      else
        launch(rows_kernel<T, n()>, warps_for(to.rows * across), work.stream, data, stride, to);
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
