#include <thrust/execution_policy.h>
#include <thrust/gather.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include "microbench/cuda/thrust_gather.h"

namespace moe::microbench {
namespace {

struct PackOf {
  const int32_t* token_of;
  unsigned packs;
  __host__ __device__ int64_t operator()(unsigned i) const {
    const unsigned row = i / packs;
    return static_cast<int64_t>(token_of[row]) * packs + (i - row * packs);
  }
};

}  // namespace

void thrust_gather(const void* tokens, const TokenRows& which, void* out, void* stream) {
  const PackOf pack_of{which.token_of, static_cast<unsigned>(which.packs)};
  const auto map = thrust::make_transform_iterator(thrust::make_counting_iterator(0U), pack_of);
  thrust::gather(thrust::cuda::par_nosync.on(static_cast<cudaStream_t>(stream)), map, map + which.rows * which.packs,
                 static_cast<const uint4*>(tokens), static_cast<uint4*>(out));
}

}  // namespace moe::microbench
