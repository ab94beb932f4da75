#include "moe/train/masked_tokens.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "moe/base/random.h"

namespace moe {

int64_t masked_places(int64_t seq) { return std::max<int64_t>(1, std::llround(0.15 * static_cast<double>(seq))); }

void mask_tokens(const MaskSeed& seed, int64_t sample, int64_t vocabulary, std::span<int32_t> tokens,
                 std::span<int32_t> targets) {
  const uint64_t stream = stream_of(seed.held_out ? "held-out masks" : "masks",
                                    static_cast<uint64_t>(seed.step) << 32 ^ static_cast<uint64_t>(sample));
  // The chosen places are those with the least numbers; three more numbers a place decide what stands there.
  const auto seq = static_cast<uint64_t>(tokens.size());
  std::vector<uint64_t> places(seq);
  std::iota(places.begin(), places.end(), uint64_t{0});
  const auto chosen = places.begin() + masked_places(static_cast<int64_t>(seq));
  std::nth_element(places.begin(), chosen - 1, places.end(), [&](uint64_t a, uint64_t b) {
    return random_bits(seed.seed, stream, a) < random_bits(seed.seed, stream, b);
  });
  std::ranges::fill(targets, kNoTarget);
  const auto mask = static_cast<int32_t>(vocabulary - 1);
  for (auto place = places.begin(); place != chosen; ++place) {
    targets[*place] = tokens[*place];
    const double kind = random_uniform(seed.seed, stream, seq + *place);
    if (kind < 0.8)
      tokens[*place] = mask;
    else if (kind < 0.9)
      tokens[*place] =
          static_cast<int32_t>(random_bits(seed.seed, stream, 2 * seq + *place) % static_cast<uint64_t>(mask));
  }
}

}  // namespace moe
