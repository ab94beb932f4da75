#pragma once
// The text to train on: every rank makes its own part of a batch, and a run can resume at any step.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moe {

enum class Split : uint8_t { train, held_out };

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  /// Returns the number of different tokens: [0, vocabulary).
  virtual int64_t vocabulary() const = 0;
  /// Fills consecutive tokens of one sample, which depend only on split, step, sample and the seed. A shorter Markov
  /// sample is the beginning of a longer one; this does not hold for samples of a file.
  virtual void fill(Split split, int64_t step, int64_t sample, std::span<int32_t> tokens) const = 0;
  /// Returns the number of previous tokens that determine the distribution of the next one; 0 if unknown.
  virtual int context() const { return 0; }
  /// Returns the least mean loss, in nats per token, of a model that sees context() or more previous tokens; nothing if
  /// it is unknown.
  virtual std::optional<double> entropy_rate() const { return std::nullopt; }
  /// Returns the least mean loss, in nats per token, of a model that sees one previous token; nothing if it is unknown.
  virtual std::optional<double> order_1_entropy() const { return std::nullopt; }
};

/// Any file as text: its bytes are the tokens.
class ByteSource final : public TokenSource {
 public:
  /// Takes the text; `path` is for messages. Throws BadInput naming it if the text has fewer than 20 bytes.
  ByteSource(std::string path, std::string text, uint64_t seed);

  int64_t vocabulary() const override { return 256; }
  /// Fills a sample: a window at a random place of its split. Throws BadInput naming the file if the split is shorter.
  void fill(Split split, int64_t step, int64_t sample, std::span<int32_t> tokens) const override;

  /// Returns the text of a split: the last tenth of the file is held out, and the rest is the training split.
  std::string_view part(Split split) const;
  /// Returns the held-out loss, in nats per byte, of predictions from counts of byte pairs in the training split, each
  /// plus one. A model with a lower loss uses more than the previous byte.
  double bigram_held_out_loss() const;

 private:
  std::string path_, text_;
  uint64_t seed_;
};

/// Returns the path of the text that comes with moetune: a packed, older copy of its own pages and sources.
std::string included_text_path();

/// Reads a file, packed by gzip or not. Throws BadInput naming it if it can't be read or is too short.
std::unique_ptr<ByteSource> read_byte_source(const std::string& path, uint64_t seed);

// Makes text by a random Markov chain: the lowest possible loss on it is known, so a model that learns can be told from
// one that does not.

/// A chain: each context of `order` tokens has its own distribution of the next token, drawn from the symmetric
/// Dirichlet distribution. The smaller the concentration, the fewer tokens have most of the probability.
struct MarkovSettings {
  int order = 2;
  int alphabet = 16;
  uint64_t seed = 1;
  double concentration = 0.1;
};

class MarkovSource final : public TokenSource {
 public:
  /// Makes the chain. Throws BadInput naming the setting unless order is in [1, 8], alphabet in [2, 256],
  /// alphabet^(order + 1) 2^22 at most, and concentration above 0 and large enough for the chain to converge.
  explicit MarkovSource(const MarkovSettings& settings);

  int64_t vocabulary() const override { return settings_.alphabet; }
  /// Fills a sample whose first tokens follow the stationary distribution; held-out samples use other random
  /// numbers.
  void fill(Split split, int64_t step, int64_t sample, std::span<int32_t> tokens) const override;
  int context() const override { return settings_.order; }
  std::optional<double> entropy_rate() const override { return entropy_rate_; }
  std::optional<double> order_1_entropy() const override { return order_1_entropy_; }

  /// Returns the number of contexts, alphabet^order. The digits of a context's number are its tokens, the latest last.
  int64_t contexts() const { return static_cast<int64_t>(stationary_.size()); }
  double stationary(int64_t context) const { return stationary_[context]; }
  double probability(int64_t context, int32_t next) const { return table_[context * settings_.alphabet + next]; }

 private:
  void make_table();
  void find_stationary();
  void find_entropies();

  MarkovSettings settings_;
  std::vector<double> table_, stationary_;           // (contexts, alphabet), (contexts)
  std::vector<double> cumulative_, first_contexts_;  // running sums, over a row of table_ and over stationary_
  double entropy_rate_ = 0, order_1_entropy_ = 0;
};

std::unique_ptr<MarkovSource> make_markov_source(const MarkovSettings& settings);

// The masked-token task of BERT (Devlin et al. 2019): 15 % of the tokens of each sample are to be predicted from all
// the others. Of these, 80 % are replaced by the mask, which is the vocabulary's last token, 10 % by a random token,
// and 10 % stay.

/// The target of a token that is not to be predicted.
inline constexpr int32_t kNoTarget = -1;

/// Returns the number of tokens of a sample that are to be predicted: 15 %, rounded, but at least 1.
int64_t masked_places(int64_t seq);

/// The inputs that determine, together with the sample's number, which tokens are masked; equal on all ranks.
struct MaskSeed {
  uint64_t seed = 1;
  bool held_out = false;
  int64_t step = 0;
};

/// Replaces tokens of a sample, all of them below vocabulary - 1, and sets the target of each place.
void mask_tokens(const MaskSeed& seed, int64_t sample, int64_t vocabulary, std::span<int32_t> tokens,
                 std::span<int32_t> targets);

}  // namespace moe
