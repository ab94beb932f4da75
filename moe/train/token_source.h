#pragma once
// Gives the text to train on: every rank makes its own part of a batch, and a run resumes anywhere.
#include <cstdint>
#include <optional>
#include <span>

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

}  // namespace moe
