#pragma once
// Makes text by a random Markov chain: how low a loss can get on it is known, so a model that learns can be told from
// one that does not.
#include <memory>
#include <vector>

#include "moe/train/token_source.h"

namespace moe {

/// Describes a chain: each context of `order` tokens has its own distribution of the next one, drawn from the symmetric
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

}  // namespace moe
