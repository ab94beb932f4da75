#pragma once
// Gives the text to train on: every rank makes its own part of a batch, and a run resumes anywhere.
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
  /// Returns how many tokens there are: [0, vocabulary).
  virtual int64_t vocabulary() const = 0;
  /// Fills successive tokens of one sample: a function of split, step, sample and the seed alone. A shorter one is the
  /// beginning of a longer Markov sample, but not of a longer one of a file.
  virtual void fill(Split split, int64_t step, int64_t sample, std::span<int32_t> tokens) const = 0;
  /// Counts the tokens before the next one that say all that there is to know of it; 0 where unknown.
  virtual int context() const { return 0; }
  /// Returns nats a token: the least mean loss of a model that sees context() tokens or more; nothing where unknown.
  virtual std::optional<double> entropy_rate() const { return std::nullopt; }
  /// Returns nats a token: the least mean loss of a model that sees one token; nothing where unknown.
  virtual std::optional<double> order_1_entropy() const { return std::nullopt; }
};

/// Reads any file as text: its bytes are the tokens.
class ByteSource final : public TokenSource {
 public:
  /// Takes the text; `path` is for messages. Throws BadInput naming it for fewer than 20 bytes.
  ByteSource(std::string path, std::string text, uint64_t seed);

  int64_t vocabulary() const override { return 256; }
  /// Fills a sample, a window at a random place of its split. Throws BadInput naming the file if the split is shorter.
  void fill(Split split, int64_t step, int64_t sample, std::span<int32_t> tokens) const override;

  /// Views a split: the last tenth of the file is held out, all before it is trained on.
  std::string_view part(Split split) const;
  /// Returns the nats a byte that a table of pairs of bytes, counted in what is trained on plus one each, loses on
  /// what is held out: a model whose loss is lower uses more than the byte before.
  double bigram_held_out_loss() const;

 private:
  std::string path_, text_;
  uint64_t seed_;
};

/// Returns the path of the text that comes with moetune: its own pages and sources, as they once were, packed.
std::string own_text();

/// Reads a file, packed by gzip or not. Throws BadInput naming it if it can't be read or is too short.
std::unique_ptr<ByteSource> read_byte_source(const std::string& path, uint64_t seed);

// Makes text by a random Markov chain: how low a loss can get on it is known, so a model that learns can be told from
// one that does not.

/// A chain: each context of `order` tokens has its own distribution of the next one, drawn from the symmetric
/// Dirichlet distribution. The smaller the concentration, the fewer tokens share most of it.
struct MarkovSettings {
  int order = 2;
  int alphabet = 16;
  uint64_t seed = 1;
  double concentration = 0.1;
};

class MarkovSource final : public TokenSource {
 public:
  /// Makes the chain. Throws BadInput naming the setting unless order is in [1, 8], alphabet in [2, 256],
  /// alphabet^(order + 1) 2^22 at most, concentration above 0 and so large that the chain forgets where it began.
  explicit MarkovSource(const MarkovSettings& settings);

  int64_t vocabulary() const override { return settings_.alphabet; }
  /// Fills a sample whose first tokens are of the stationary distribution; held-out samples are of other random
  /// numbers.
  void fill(Split split, int64_t step, int64_t sample, std::span<int32_t> tokens) const override;
  int context() const override { return settings_.order; }
  std::optional<double> entropy_rate() const override { return entropy_rate_; }
  std::optional<double> order_1_entropy() const override { return order_1_entropy_; }

  /// Counts the contexts. A context's number is its tokens' as digits, the latest one last: below alphabet^order.
  int64_t contexts() const { return static_cast<int64_t>(stationary_.size()); }
  double stationary(int64_t context) const { return stationary_[context]; }
  double probability(int64_t context, int32_t next) const { return table_[context * settings_.alphabet + next]; }

 private:
  void make_table();
  void find_stationary();
  void find_entropies();

  MarkovSettings settings_;
  std::vector<double> table_, stationary_;           // (contexts, alphabet), (contexts)
  std::vector<double> cumulative_, first_contexts_;  // their running sums, over a row and over all
  double entropy_rate_ = 0, order_1_entropy_ = 0;
};

std::unique_ptr<MarkovSource> make_markov_source(const MarkovSettings& settings);

// The masked-token task of BERT (Devlin et al. 2019): of each sample 15 % of the tokens are to be predicted from all
// the others. Of these 80 % are replaced by the mask, the vocabulary's last token, 10 % by any token at random, and
// 10 % stay.

/// The target where nothing is to be predicted.
inline constexpr int32_t kNoTarget = -1;

/// Counts the tokens of a sample that are to be predicted: 15 % of them, rounded, and 1 at least.
int64_t masked_places(int64_t seq);

/// What, with the sample's number, alone decides the choice, whoever asks.
struct MaskSeed {
  uint64_t seed = 1;
  bool held_out = false;
  int64_t step = 0;
};

/// Replaces tokens of a sample, all of them below vocabulary - 1, and says what is to be predicted where.
void mask_tokens(const MaskSeed& seed, int64_t sample, int64_t vocabulary, std::span<int32_t> tokens,
                 std::span<int32_t> targets);

}  // namespace moe
