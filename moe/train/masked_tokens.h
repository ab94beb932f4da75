#pragma once
// The masked-token task of BERT (Devlin et al. 2019): of each sample 15 % of the tokens are to be predicted from all
// the others. Of these 80 % are replaced by the mask, the vocabulary's last token, 10 % by any token at random, and
// 10 % stay.
#include <cstdint>
#include <span>

namespace moe {

/// The target where nothing is to be predicted.
inline constexpr int32_t kNoTarget = -1;

/// Counts the tokens of a sample that are to be predicted: 15 % of them, rounded, and 1 at least.
int64_t masked_places(int64_t seq);

/// Holds what, with the sample's number, alone decides the choice, whoever asks.
struct MaskSeed {
  uint64_t seed = 1;
  bool held_out = false;
  int64_t step = 0;
};

/// Replaces tokens of a sample, all of them below vocabulary - 1, and says what is to be predicted where.
void mask_tokens(const MaskSeed& seed, int64_t sample, int64_t vocabulary, std::span<int32_t> tokens,
                 std::span<int32_t> targets);

}  // namespace moe
